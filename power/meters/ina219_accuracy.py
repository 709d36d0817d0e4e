"""Limits of error of an INA219 with its shunt."""

from __future__ import annotations

import math
from typing import Literal

from power.model import Accuracy, RangeAccuracy
from power.wire.ina219_registers import BUS_LSB_V, SHUNT_LSB_V

Grade = Literal["A", "B"]

# Texas Instruments SBOS448G section 7.5, maxima: over -25 to 85 degC where the sheet states them so.
_CURRENT_ERROR_REL = {"A": 0.010, "B": 0.005}
_OFFSET_V = {
    "A": {1: 100e-6, 2: 125e-6, 4: 150e-6, 8: 200e-6},
    "B": {1: 50e-6, 2: 75e-6, 4: 75e-6, 8: 100e-6},
}
_BUS_ERROR_REL = 0.010


def ina219_accuracy(grade: Grade, pga: int, shunt_ohm: float, shunt_tolerance: float) -> Accuracy:
    """What the data sheet and the shunt's tolerance allow; independent limits are combined in quadrature.

    Args:
        grade: Of the chip.
        pga: Gain divider 1, 2, 4 or 8.
        shunt_ohm: Shunt resistance.
        shunt_tolerance: Its relative tolerance.
    """
    gain_rel = math.hypot(_CURRENT_ERROR_REL[grade], shunt_tolerance)
    offset_v = math.hypot(_OFFSET_V[grade][pga], SHUNT_LSB_V / 2)
    return Accuracy(
        current=(RangeAccuracy(name=f"pga/{pga}", gain_rel=gain_rel, offset_a=offset_v / shunt_ohm),),
        voltage_gain_rel=_BUS_ERROR_REL,
        voltage_offset_v=BUS_LSB_V / 2,
        source=f"TI SBOS448G 7.5, INA219{grade}, maxima over temperature, PGA/{pga};"
        f" shunt {shunt_ohm:g} ohm, tolerance {shunt_tolerance:.2%}; half a step for the converter",
    )
