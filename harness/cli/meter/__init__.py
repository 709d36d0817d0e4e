"""``joulefleet meter``: find, record, show, check and emulate instruments."""
