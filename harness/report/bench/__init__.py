"""Pages of what was measured: jobs, profiles and rounds of devices, probing, a device over time."""
