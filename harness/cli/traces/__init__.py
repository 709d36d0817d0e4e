"""``joulefleet traces``: interaction traces on the command line."""
