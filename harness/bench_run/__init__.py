"""What ``joulefleet bench run`` does: the jobs of a plan, each by itself, on all devices at the same time."""
