"""Cohorts from forecast costs; probes only where they are worth their price."""
