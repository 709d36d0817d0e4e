"""``joulefleet lab``: runs in a browser, live, on this machine only. It reads what others write."""
