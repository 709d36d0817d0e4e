"""Pages of emulations and experiments: methods against each other."""
