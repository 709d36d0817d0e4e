"""A USB cable made of a Unix socket, and both its ends."""
