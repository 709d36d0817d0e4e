"""``joulefleet bench``: devices, plans, runs and federations on the command line."""
