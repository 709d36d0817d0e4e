"""An emulated INA219 with its microcontroller: the chip, the board around it, the sketch."""
