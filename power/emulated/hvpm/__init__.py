"""An emulated Monsoon HVPM (black) or reflashed LVPM: its registers, observations and packets."""
