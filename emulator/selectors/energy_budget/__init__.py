"""The most valuable cohorts within one energy budget for the whole training."""
