"""``joulefleet profile``: device profiles on the command line."""
