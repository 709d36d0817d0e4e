"""USB for drivers: a claimed device, and bulk reads that never pause."""
