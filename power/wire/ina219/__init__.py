"""The INA219: our framed protocol, the loose lines of other sketches, and the chip's registers."""
