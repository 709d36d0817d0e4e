"""The lines that common INA219 sketches print, one known format at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

MAX_V = 32.0
"""Full scale of the bus voltage (SBOS448G 7.5)."""

MAX_A = 100.0
"""As in `power.meter.MeterConfig.current_limit_a`."""

ROWS_TO_RECOGNISE = 3

# Sketches print two decimals: bus and sum are each off by up to 5 mV, the shunt voltage by 5 uV.
_SUM_TOLERANCE_V = 0.0105


class CsvFormat(StrEnum):
    """The formats that are known."""

    MILLIS_LOAD = "millis-load"
    MILLIS_ALL = "millis-all"
    ALL = "all"
    MILLIS_CURRENT = "millis-current"
    ADAFRUIT = "adafruit"

    @property
    def has_clock(self) -> bool:
        """Whether readings carry the sketch's milliseconds."""
        return self.value.startswith("millis")


DESCRIPTIONS = {
    CsvFormat.MILLIS_LOAD: "millis,loadV,mA",
    CsvFormat.MILLIS_ALL: "millis,busV,shuntmV,loadV,mA",
    CsvFormat.ALL: "busV,shuntmV,loadV,mA",
    CsvFormat.MILLIS_CURRENT: "millis mA",
    CsvFormat.ADAFRUIT: "'Bus Voltage: 5.02 V' and so on, one quantity a line",
}

_MILLIS = rb"\d{1,10}"
_NUMBER = rb"-?\d{1,7}(?:\.\d{1,6})?"


def _columns(*names: bytes, separator: bytes = b",") -> re.Pattern[bytes]:
    columns = [b"(?P<%s>%s)" % (name, _MILLIS if name == b"millis" else _NUMBER) for name in names]
    return re.compile(separator.join(columns))


_PATTERNS = {
    CsvFormat.MILLIS_LOAD: _columns(b"millis", b"load", b"ma"),
    CsvFormat.MILLIS_ALL: _columns(b"millis", b"bus", b"shunt", b"load", b"ma"),
    CsvFormat.ALL: _columns(b"bus", b"shunt", b"load", b"ma"),
    CsvFormat.MILLIS_CURRENT: _columns(b"millis", b"ma", separator=rb"[ \t]"),
    CsvFormat.ADAFRUIT: re.compile(
        rb"Bus Voltage:\s*(?P<bus>%(n)s)\s*V"
        rb"|Shunt Voltage:\s*(?P<shunt>%(n)s)\s*mV"
        rb"|Load Voltage:\s*(?P<load>%(n)s)\s*V"
        rb"|(?:Bus )?Power:\s*(?P<power>%(n)s)\s*mW"
        rb"|Current:\s*(?P<ma>%(n)s)\s*mA" % {b"n": _NUMBER}
    ),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One reading as a sketch prints it.

    Attributes:
        millis: The sketch's clock, or None.
        bus_v: Voltage at the device (IN-), or None.
        source_v: Bus plus shunt voltage, which sketches call load voltage, or None.
        current_a: Current, as the sketch computes it from the shunt voltage.
        shunt_v: Voltage across the shunt, or None.
    """

    millis: int | None
    bus_v: float | None
    source_v: float | None
    current_a: float
    shunt_v: float | None = None


@dataclass(slots=True)
class CsvRowReader:
    """Reads the lines of one format; a reading of the Adafruit format takes several lines.

    Attributes:
        format: The format.
        decimals: Most digits seen after the point, by column.
        torn: The reading under way may lack lines, so it will not be used.
    """

    format: CsvFormat
    torn: bool = False
    decimals: dict[str, int] = field(default_factory=dict)
    _parts: dict[str, float] = field(default_factory=dict)

    def read(self, line: bytes) -> Row | Literal["part", "bad"]:
        """The reading that a line completes, or whether it is part of one or not readable."""
        line = line.strip()
        if not line:
            return "part"
        match = _PATTERNS[self.format].fullmatch(line)
        if match is None:
            self.torn = self.format is CsvFormat.ADAFRUIT
            return "bad"
        for name, text in match.groupdict().items():
            if text is not None:
                self._parts[name] = float(text)
                decimals = len(text.partition(b".")[2])
                self.decimals[name] = max(decimals, self.decimals.get(name, 0))
        if match.lastgroup == "bus":  # sketches that print it print it first
            self.torn = False
        if "ma" not in self._parts:
            return "part"
        parts, torn = self._parts, self.torn
        self._parts, self.torn = {}, False
        return "part" if torn else _row(parts, self.format) or "bad"


def _row(parts: dict[str, float], csv_format: CsvFormat) -> Row | None:
    """A reading, unless no INA219 can have measured it or its columns contradict each other."""
    bus_v, load_v, current_a = parts.get("bus"), parts.get("load"), parts["ma"] * 1e-3
    volts = [value for value in (bus_v, load_v) if value is not None]
    if abs(current_a) > MAX_A or not all(0 <= value <= MAX_V for value in volts):
        return None
    if not volts and csv_format is not CsvFormat.MILLIS_CURRENT:
        return None
    shunt_v = parts["shunt"] * 1e-3 if "shunt" in parts else None
    if bus_v is None or load_v is None or shunt_v is None:
        contradiction_v = 0.0
    else:
        contradiction_v = abs(bus_v + shunt_v - load_v)
    millis = int(parts["millis"]) if "millis" in parts else None
    if contradiction_v > _SUM_TOLERANCE_V or (millis is not None and millis >= 1 << 32):
        return None
    return Row(millis, bus_v, load_v, current_a, shunt_v)


def recognise(lines: Iterable[bytes]) -> CsvFormat | None:
    """The format of which the last lines are; None if they are of none.

    Formats differ in their separators and number of columns, so that no line can be of two.
    """
    found = list(lines)
    for csv_format in CsvFormat:
        reader = CsvRowReader(csv_format)
        rows = 0
        for line in found:
            outcome = reader.read(line)
            rows = 0 if outcome == "bad" else rows + isinstance(outcome, Row)
        if rows >= (1 if csv_format is CsvFormat.ADAFRUIT else ROWS_TO_RECOGNISE):
            return csv_format
    return None


def known_formats() -> str:
    """The formats for messages."""
    return "; ".join(f"{name.value} ({text})" for name, text in DESCRIPTIONS.items())
