"""The agent: runs on the device, speaks JSON lines on standard input and output."""
