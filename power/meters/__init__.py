"""Drivers, one file per instrument; `power.meter.METERS` lists them."""
