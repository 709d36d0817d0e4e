"""Whether the current that a sketch prints fits the shunt voltage beside it and the shunt's resistance.

A sketch computes the current with the resistance that its library was told (0.1 ohm unless someone changed
it). On a board with another shunt every current is wrong by the same factor, and no single line shows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from power.model import Finding, Severity
from power.wire.ina219_csv_rows import Row
from power.wire.ina219_registers import SHUNT_LSB_V

ROUNDING_V = 3 * SHUNT_LSB_V
"""Per line: the chip's steps of shunt voltage and of current, and the two decimals printed of each."""


@dataclass(slots=True)
class ShuntCheck:
    """Sums over the lines, because shunt voltage and current may be of two conversions in one line.

    Attributes:
        shunt_ohm: What the user says the shunt has; None does not check.
        tolerance: How far the user says that may be off, relative.
    """

    shunt_ohm: float | None
    tolerance: float
    _lines: int = 0
    _shunt_v: float = 0.0
    _current_a: float = 0.0
    _magnitude_a: float = 0.0
    _largest_a: float = 0.0

    def add(self, row: Row) -> None:
        """Take a line over, if it tells the shunt voltage."""
        if self.shunt_ohm is None or row.shunt_v is None:
            return
        self._lines += 1
        self._shunt_v += row.shunt_v
        self._current_a += row.current_a
        self._magnitude_a += abs(row.current_a)
        self._largest_a = max(self._largest_a, abs(row.current_a))

    def findings(self) -> tuple[Finding, ...]:
        """The contradiction, if there is one; it concerns every sample."""
        if self.shunt_ohm is None or not self._lines:
            return ()
        # An edge of the load may lie between the two conversions of one line; further edges cancel out.
        allowed_v = self.shunt_ohm * (self.tolerance * self._magnitude_a + self._largest_a)
        off_v = self._shunt_v - self.shunt_ohm * self._current_a
        if abs(off_v) <= allowed_v + self._lines * ROUNDING_V:
            return ()
        implied = f"{self._shunt_v / self._current_a:.4g} ohm" if self._current_a else "none"
        return (
            Finding(
                code="shunt_contradiction",
                severity=Severity.ERROR,
                message=f"the sketch's currents and shunt voltages fit a shunt of {implied}, not"
                f" shunt_ohm = {self.shunt_ohm:g}: correct the option, or the resistance in the sketch",
                count=self._lines,
            ),
        )
