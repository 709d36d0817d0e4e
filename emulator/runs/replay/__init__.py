"""What the traces and the fleet mean for a run: what it allows, what is to be expected, what happened."""
