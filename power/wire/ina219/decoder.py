"""Decoder of the framed INA219 protocol (`power.wire.ina219.frames`).

``voltage_v`` is the bus voltage: between IN- and ground, which is what the measured device gets. The source
gives ``voltage_v + current_a x shunt``; that extra power heats the shunt and is not the device's. (Sketches
that print a "load voltage" of bus plus shunt mean the source's.)

A current is an average, so its tick is the middle of what was averaged, although the microcontroller stamps
it when the bus voltage that follows is there.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from power.model import Finding, FindingLog, Severity
from power.wire.decoder import Decoded, LineBuffer
from power.wire.ina219.frames import (
    MAX_LINE,
    Conversion,
    Counters,
    Flags,
    Header,
    Refused,
    parse_conversions,
    parse_line,
)
from power.wire.ina219.registers import BUS_LSB_V, BUS_SHIFT, SHUNT_LSB_V
from power.wire.ina219.track import SampleTrack

if TYPE_CHECKING:
    from numpy.typing import NDArray

PORTION_BYTES = 1 << 16
"""Decoded at a time, so that a day of bytes needs no more memory than this."""

SYNC_EDGES_KEPT = 4096
CHIP_SILENT_US = 1_000_000

_NO_READING = Flags.I2C_ERROR | Flags.CAL_LOST

_MESSAGES = {
    "bad_checksum": "lines whose checksum does not match were dropped",
    "malformed_line": "lines that are no frame of the protocol were dropped",
    "bad_header": "a header that does not fit the protocol was dropped",
}


@dataclass(frozen=True, slots=True)
class SyncEdge:
    """The level of the sync input changed; ``tick`` is the end of the first conversion that saw it."""

    tick: int
    high: bool


class Ina219Decoder:
    """Bytes of one run to samples, starting with the run's header. See `power.wire.decoder.Decoder`.

    Attributes:
        header: The header of the run, once it was seen.
        counters: The microcontroller's last report.
        restarted: It began again in the middle: nothing after that can be placed in time.
    """

    def __init__(self) -> None:
        self._log = FindingLog()
        self._lines = LineBuffer(MAX_LINE)
        self._overlong_seen = 0
        self._track: SampleTrack | None = None
        self._last_sample = -1
        self._sync_edges: deque[SyncEdge] = deque(maxlen=SYNC_EDGES_KEPT)
        self._sync_high: bool | None = None
        self._unanswered = 0
        self.header: Header | None = None
        self.counters: Counters | None = None
        self.restarted = False
        self._heard: Counter[str] = Counter()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was wrong with the bytes so far."""
        return self._log.as_tuple()

    @property
    def heard(self) -> dict[str, int]:
        """See `power.wire.decoder.Decoder`."""
        return dict(self._heard)

    @property
    def chip_is_silent(self) -> bool:
        """The chip has never answered the microcontroller, for a second or more."""
        period_us = self.header.period_us if self.header else 0
        return self._last_sample < 0 and self._unanswered * period_us >= CHIP_SILENT_US

    @property
    def sync_edges(self) -> tuple[SyncEdge, ...]:
        """The latest changes of the sync input."""
        return tuple(self._sync_edges)

    def finish(self) -> list[Decoded]:
        """See `power.wire.decoder.Decoder`: nothing is."""
        return []

    def feed(self, data: bytes, arrival_ns: int) -> list[Decoded]:
        """Decode more bytes."""
        decoded: list[Decoded] = []
        for start in range(0, len(data), PORTION_BYTES):
            whole = self._lines.feed(data[start : start + PORTION_BYTES])
            if self._lines.overlong > self._overlong_seen:
                self._add(
                    "overlong_line",
                    "bytes without a newline were dropped: this is not the protocol, or another baud rate",
                    self._lines.overlong - self._overlong_seen,
                )
                self._overlong_seen = self._lines.overlong
            if whole:
                decoded += self._decode(whole)
        return decoded

    def _decode(self, whole: bytes) -> list[Decoded]:
        """Decode whole lines: nearly always they are all good data lines, which is quick."""
        rows = parse_conversions(whole)
        if rows is not None:
            return self._take(rows)
        decoded: list[Decoded] = []
        frames: list[Conversion] = []
        for line in whole.split(b"\n"):
            frame = parse_line(line) if line else None
            if isinstance(frame, Conversion):
                frames.append(frame)
            elif isinstance(frame, Refused):
                self._add(frame.code, _MESSAGES[frame.code], 1)
            elif isinstance(frame, Counters):
                self._heard["counter lines"] += 1
                self._compare(frame)
            elif isinstance(frame, Header):
                self._heard["headers"] += 1
                decoded += self._take(np.array(frames, np.int64))
                frames = []
                self._begin(frame)
        return decoded + self._take(np.array(frames, np.int64))

    def _begin(self, header: Header) -> None:
        """A header opens the run, repeats what is known, or shows a restart."""
        if self.header is not None and self.header.run == header.run:
            return
        if self._track is not None and self._track.index >= 0:
            self._restart()
            return
        self.header = header
        self._track = SampleTrack(header.period_us, header.t_us)

    def _restart(self) -> None:
        self.restarted = True
        self._add(
            "mcu_restart",
            "the microcontroller restarted; what it sent afterwards cannot be placed in time",
            1,
            Severity.ERROR,
        )

    def _compare(self, counters: Counters) -> None:
        """Overruns tell why conversions are missing."""
        before = self.counters.overruns if self.counters else 0
        self._add(
            "mcu_overrun",
            "lines did not fit into the microcontroller's serial buffer: use a higher baud rate",
            max(0, counters.overruns - before),
        )
        self.counters = counters

    def _take(self, rows: NDArray[np.int64]) -> list[Decoded]:
        """Conversions, in order, one row each, as samples."""
        count = len(rows)
        if not count:
            return []
        if self._track is None or self.header is None:
            self._add("no_header", "conversions before any header were dropped", count, Severity.ERROR)
            return []
        if self.restarted:
            self._add("after_restart", "conversions after a restart were dropped", count)
            return []
        seq, t_us, shunt_raw, bus_raw, flags = rows.T
        placed = self._track.follow(seq, t_us)
        if self._track.restarted:
            self._restart()
        self._add("repeated_line", "conversions that came twice were dropped", placed.repeated)
        self._add("out_of_order", "conversions with an impossible number or time", placed.out_of_order)
        self._add("clock_jump", "number and time of the conversions leapt", placed.jumps)
        flags = flags[placed.kept]
        self._note_flags(flags, placed.index)
        self._unanswered += int(np.count_nonzero(flags & Flags.I2C_ERROR))
        self._note_sync(flags, placed.tick)
        usable = (flags & _NO_READING) == 0
        kept = placed.kept[usable]
        return self._samples(
            placed.index[usable],
            placed.tick[usable],
            shunt_raw[kept],
            bus_raw[kept] >> BUS_SHIFT,
            self.header,
        )

    def _samples(
        self,
        index: NDArray[np.int64],
        tick: NDArray[np.int64],
        shunt: NDArray[np.int64],
        bus: NDArray[np.int64],
        header: Header,
    ) -> list[Decoded]:
        """Readings in SI units, cut where conversions are missing."""
        if not len(index):
            return []
        settings = header.settings
        self._note_where(
            np.abs(shunt) >= settings.shunt_full_scale, index, "clipping", "the current left the range"
        )
        self._note_where(
            bus >= settings.bus_full_scale, index, "bus_clipping", "the bus voltage left the range"
        )
        current_a = shunt * (SHUNT_LSB_V / header.shunt_ohm)
        voltage_v = bus * BUS_LSB_V
        middle = tick - settings.stamp_after_middle_us
        missing = np.diff(index, prepend=self._last_sample) - 1
        self._last_sample = int(index[-1])
        cuts = np.flatnonzero(missing)
        bounds = [0, *cuts[cuts > 0].tolist(), len(index)]
        return [
            Decoded(int(index[a]), int(missing[a]), middle[a:b], current_a[a:b], voltage_v[a:b])
            for a, b in pairwise(bounds)
        ]

    def _note_flags(self, flags: NDArray[np.int64], index: NDArray[np.int64]) -> None:
        stale = (flags & (Flags.CNVR | _NO_READING)) == 0
        warn = Severity.WARNING
        self._note_where(stale, index, "stale_conversion", "readings that repeat the one before", warn)
        for flag, code, message, severity in (
            (Flags.I2C_ERROR, "i2c_error", "the chip did not answer the microcontroller", warn),
            (Flags.CAL_LOST, "cal_lost", "the chip had lost its registers; the reading was dropped", warn),
            (Flags.RESET, "chip_reset", "the chip was reset (a sharp load does it) and set up again", warn),
        ):
            self._note_where((flags & flag) != 0, index, code, message, severity)
        overflow = (flags & (Flags.OVF | _NO_READING)) == Flags.OVF
        message = "the chip's own current register overflowed"
        self._note_where(overflow, index, "math_overflow", message, Severity.INFO)

    def _note_sync(self, flags: NDArray[np.int64], tick: NDArray[np.int64]) -> None:
        if not len(flags):
            return
        high = (flags & Flags.SYNC) != 0
        before = bool(high[0]) if self._sync_high is None else self._sync_high
        for i in np.flatnonzero(np.diff(high, prepend=before)).tolist():
            self._sync_edges.append(SyncEdge(int(tick[i]), bool(high[i])))
        self._sync_high = bool(high[-1])

    def _note_where(
        self,
        where: NDArray[np.bool_],
        index: NDArray[np.int64],
        code: str,
        message: str,
        severity: Severity = Severity.ERROR,
    ) -> None:
        self._log.add_each(code, severity, message, index[where])

    def _add(self, code: str, message: str, count: int, severity: Severity = Severity.WARNING) -> None:
        if count:
            index = None if self._track is None else self._track.index + 1
            self._log.add(code, severity, message, index=index, count=count)
