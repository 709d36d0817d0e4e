"""Decoder of loose lines from INA219 sketches: no checksum, no number, at best milliseconds.

What cannot be known stays unknown: a flipped digit may pass, and lost lines are not counted.
``dropped_before`` is None for the first block and wherever there is reason to think that lines are missing
(an unreadable line, a pause, a leap of the clock); 0 elsewhere says no more than that the lines continue.

Ticks are microseconds: of the sketch's ``millis()`` where it prints them, else of the line's arrival. Even
the former are taken when a line is printed, not when the chip converted; hence ``timing=host``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from power.model import ONE_LOST_PERIODS, Finding, FindingLog, Severity
from power.wire.decoder import Decoded, LineBuffer
from power.wire.ina219.csv_rows import CsvFormat, CsvRowReader, Row
from power.wire.ina219.registers import SHUNT_LSB_V

ROUNDING_V = 3 * SHUNT_LSB_V
"""Per line: the chip's steps of shunt voltage and of current, and the two decimals printed of each."""


@dataclass(slots=True)
class ShuntCheck:
    """Whether the current that a sketch prints fits the shunt voltage beside it and the shunt's resistance.

    A sketch computes the current with the resistance that is set in its library (0.1 ohm unless someone
    changed it). On a board with another shunt every current is wrong by the same factor, and no single line
    shows it. These are sums over all lines, also because one line may mix two conversions.

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
        """Take a line over, if it has the shunt voltage."""
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


MAX_LINE = 200
"""Longest line; the longest of the known formats has 50 bytes."""

TICK_HZ = 1e6

SHUNT_TOLERANCE = 0.01
"""Relative, of the shunt on Adafruit's board."""

BELIEVED_MS = 10_000
"""A clock that leaps further than this must be confirmed by the next line: a digit may be wrong."""

_U32 = 1 << 32


@dataclass(frozen=True, slots=True)
class CsvScale:
    """What the lines do not say.

    Attributes:
        shunt_ohm: Turns bus plus shunt voltage into bus voltage; None leaves it as it is. Where lines have
            the shunt voltage, their current must agree with it.
        assumed_voltage_v: Voltage of formats that have none.
        shunt_tolerance: How far the shunt may be off, relative.
    """

    shunt_ohm: float | None = None
    assumed_voltage_v: float | None = None
    shunt_tolerance: float = SHUNT_TOLERANCE

    def is_at_source(self, row: Row) -> bool:
        """Whether the voltage of a line stays that of the source."""
        return row.bus_v is None and row.source_v is not None and self.shunt_ohm is None

    def voltage_v(self, row: Row) -> float:
        """Voltage at the device, or as near to it as the line allows."""
        if row.bus_v is not None:
            return row.bus_v
        if row.source_v is not None:
            return row.source_v - row.current_a * (self.shunt_ohm or 0.0)
        if self.assumed_voltage_v is None:
            raise ValueError("a format without voltage needs an assumed one")
        return self.assumed_voltage_v


@dataclass(slots=True)
class _Block:
    """Readings with nothing suspicious between them."""

    first_index: int
    dropped_before: int | None
    ticks: list[int] = field(default_factory=list)
    current_a: list[float] = field(default_factory=list)
    voltage_v: list[float] = field(default_factory=list)

    def decoded(self) -> Decoded:
        return Decoded(
            self.first_index,
            self.dropped_before,
            np.array(self.ticks, np.int64),
            np.array(self.current_a),
            np.array(self.voltage_v),
        )


class MillisClock:
    """Unwraps a sketch's ``millis()`` into microseconds and refuses leaps until they are confirmed.

    Args:
        log: Takes what is noticed.
        pause_us: A longer step from line to line means that lines are missing.

    Attributes:
        leapt: Whether that is so before the last line.
    """

    def __init__(self, log: FindingLog, pause_us: float) -> None:
        self._log = log
        # A millisecond is the shortest step there is, so it is none at more than 1000 lines per second.
        self._pause_ms = max(pause_us * 1e-3, 1.0)
        self._believed_ms = max(self._pause_ms, BELIEVED_MS)
        self._millis: int | None = None
        self._suspect: int | None = None
        self._base = 0
        self._tick = -1
        self._seen_ns = 0
        self.leapt = False

    def tick(self, millis: int, arrival_ns: int) -> int | None:
        """The tick of a line, or None if its time cannot be believed yet."""
        self.leapt = False
        if self._millis is None:
            return self._accept(millis, millis * 1000, arrival_ns)
        ahead = (millis - self._millis) % _U32
        if ahead <= self._believed_ms:
            self.leapt = ahead > self._pause_ms
            return self._accept(millis, self._base + ahead * 1000, arrival_ns)
        if self._suspect is None or (millis - self._suspect) % _U32 > self._believed_ms:
            self._suspect = millis
            self._log.add("implausible_time", Severity.WARNING, "lines whose time leaps were dropped")
            return None
        self.leapt = True
        self._log.add("clock_jump", Severity.WARNING, "the sketch paused or restarted; lines are missing")
        if ahead >= _U32 // 2:  # it restarted: only the host knows how long that took
            ahead = max(1, (arrival_ns - self._seen_ns) // 1_000_000)
        return self._accept(millis, self._base + ahead * 1000, arrival_ns)

    def _accept(self, millis: int, base: int, arrival_ns: int) -> int:
        self._millis, self._base, self._seen_ns, self._suspect = millis, base, arrival_ns, None
        # Several lines of one millisecond keep their order.
        self._tick = max(base, self._tick + 1)
        return self._tick


class Ina219CsvDecoder:
    """Lines of one format to samples. The first line is not used where it may be the end of a longer one."""

    def __init__(self, csv_format: CsvFormat, scale: CsvScale, rate_hz: float) -> None:
        self.format = csv_format
        self._scale = scale
        self._shunt = ShuntCheck(scale.shunt_ohm, scale.shunt_tolerance)
        self._period_us = 1e6 / rate_hz
        self._pause_us = ONE_LOST_PERIODS * self._period_us
        self._log = FindingLog()
        self._lines = LineBuffer(MAX_LINE)
        self._overlong_seen = 0
        self._reader = CsvRowReader(csv_format, torn=csv_format is CsvFormat.ADAFRUIT)
        self._clock = MillisClock(self._log, self._pause_us)
        self._last_tick: int | None = None
        # An Adafruit line is torn or whole, never another valid line.
        self._first_line = csv_format is not CsvFormat.ADAFRUIT
        self._index = 0
        self._broken = True
        self._at_source = False

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was wrong with the lines so far."""
        return self._log.as_tuple() + self._shunt.findings()

    def finish(self) -> list[Decoded]:
        """See `power.wire.decoder.Decoder`: nothing is."""
        return []

    @property
    def heard(self) -> dict[str, int]:
        """See `power.wire.decoder.Decoder`: a sketch prints nothing else that is known."""
        return {}

    def feed(self, data: bytes, arrival_ns: int) -> list[Decoded]:
        """Decode more bytes. See `power.wire.decoder.Decoder`."""
        blocks: list[_Block] = []
        whole = self._lines.feed(data)
        if self._lines.overlong > self._overlong_seen:
            self._overlong_seen = self._lines.overlong
            self._unreadable()
        for line in whole.split(b"\n")[:-1]:
            if self._first_line:
                self._first_line = False
                continue
            outcome = self._reader.read(line)
            if isinstance(outcome, Row):
                self._append(blocks, outcome, arrival_ns)
            elif outcome == "bad":
                self._unreadable()
        if blocks and not self.format.has_clock:
            self._spread(blocks, arrival_ns // 1000)
        return [block.decoded() for block in blocks]

    def _unreadable(self) -> None:
        self._broken = True
        self._log.add(
            "unreadable_line",
            Severity.WARNING,
            f"lines that are not of the format {self.format.value} were dropped",
            index=self._index,
        )

    def _append(self, blocks: list[_Block], row: Row, arrival_ns: int) -> None:
        tick = 0
        if row.millis is not None:
            known = self._clock.tick(row.millis, arrival_ns)
            self._broken |= known is None or self._clock.leapt
            if known is None:
                return
            tick = known
        if self._broken or not blocks:
            blocks.append(_Block(self._index, None if self._broken else 0))
            self._broken = False
        if not self._at_source and self._scale.is_at_source(row):
            self._at_source = True
            self._log.add(
                "source_voltage",
                Severity.WARNING,
                "the sketch prints bus plus shunt voltage, so power includes the shunt's own loss;"
                " options.shunt_ohm corrects that",
                index=self._index,
            )
        self._shunt.add(row)
        blocks[-1].ticks.append(tick)
        blocks[-1].current_a.append(row.current_a)
        blocks[-1].voltage_v.append(self._scale.voltage_v(row))
        self._index += 1

    def _spread(self, blocks: list[_Block], arrival_us: int) -> None:
        """Without a clock, readings that arrived together lie evenly between this arrival and the last."""
        count = sum(len(block.ticks) for block in blocks)
        before_us = self._last_tick
        if before_us is None:
            before_us = arrival_us - round(count * self._period_us)
        step_us = min(self._period_us, (arrival_us - before_us) / count)
        if arrival_us - (count - 1) * step_us - before_us > self._pause_us:
            blocks[0].dropped_before = None
        left = count
        for block in blocks:
            for i in range(len(block.ticks)):
                left -= 1
                before_us = max(before_us + 1, arrival_us - round(left * step_us))
                block.ticks[i] = before_us
        self._last_tick = before_us
