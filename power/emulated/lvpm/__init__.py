"""An emulated Monsoon LVPM (white): its serial protocol, and the converter behind it."""
