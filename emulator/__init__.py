"""The emulator: a fleet on a virtual clock, federated training for real, costs charged to every device."""
