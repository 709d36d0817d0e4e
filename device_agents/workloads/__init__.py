"""Training work as plain numpy or torch, shared by the agent on the device and by the emulator."""
