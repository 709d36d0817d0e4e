"""Puts the agent on a device: what the device needs, the payload as one file, upload and start."""
