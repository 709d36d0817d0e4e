"""Samples the device's own power sensors on the device's clock into journal blocks.

Three kinds of records go to the telemetry journal:

``power_source``
    One per sensor, first: what its integers mean (see `device_agents.payload.recording.sysfs_power`).
``power``
    A block of readings: ``source``; ``first_index``, how many readings came before; ``dropped``, how many
    that were due since the block before did not happen (the stamps show where); ``t_dev_ns``, the middle of
    each reading; ``read_ns``, how long the slowest took; ``raw``, one list of integers per column, whose SI
    values are ``raw * scale``.
``power_rate``
    One per sensor, last: how many readings there are, how many of them changed anything, and the two rates
    that follow. A sensor that is polled at 50 Hz and changes twice a second is a 2 Hz sensor.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from device_agents.payload.recording.periodic import Periodic
from device_agents.payload.recording.sysfs_power import Sensor, find_sensors

if TYPE_CHECKING:
    from pathlib import Path

    from device_agents.payload.recording.journal import JobJournal

BLOCK_NS = 10**9
MAX_BLOCK = 500
"""Readings per block: a line stays well below the wire's 64 KiB."""


class SysfsSampler(Periodic):
    """Samples all sensors of a device."""

    def __init__(self, root: Path, rate_hz: float, journal: JobJournal) -> None:
        super().__init__("power", 1 / rate_hz)
        self._journal = journal
        self._tracks = [SensorTrack(sensor) for sensor in find_sensors(root)]
        self._missed_before = 0

    def start(self) -> None:
        """Describe the sensors, then sample; a device without any says so and samples nothing."""
        for track in self._tracks:
            self._journal.append(track.sensor.describe())
        if self._tracks:
            super().start()
        else:
            self._journal.append({"type": "no_power_source"})

    def stop(self) -> None:
        """Stop sampling, write what is left, release the files."""
        super().stop()
        try:
            for track in self._tracks:
                self._journal.append(track.block())
                self._journal.append(track.rate())
        finally:
            for track in self._tracks:
                track.sensor.close()

    def turn(self) -> None:
        """One reading of every sensor."""
        missed, self._missed_before = self.missed - self._missed_before, self.missed
        for track in self._tracks:
            track.dropped += missed
            track.read()
            if track.is_full:
                self._journal.append(track.block())


class SensorTrack:
    """The readings of one sensor.

    Attributes:
        dropped: Readings that were due since the last block and did not happen.
    """

    def __init__(self, sensor: Sensor) -> None:
        self.sensor = sensor
        self.dropped = 0
        self._stamps_ns: list[int] = []
        self._rows: list[tuple[int, ...]] = []
        self._read_ns = 0
        self._blocked = 0
        self._updates = 0
        self._last_row: tuple[int, ...] = ()
        self._first_ns = self._last_ns = 0

    @property
    def is_full(self) -> bool:
        """Whether the block is to be written."""
        stamps = self._stamps_ns
        return len(stamps) >= MAX_BLOCK or bool(stamps and stamps[-1] - stamps[0] >= BLOCK_NS)

    def read(self) -> None:
        """One reading; a sensor that refuses has dropped it."""
        before_ns = time.monotonic_ns()
        try:
            row = tuple(file.number() for file in self.sensor.files)
        except (OSError, ValueError):
            self.dropped += 1
            return
        after_ns = time.monotonic_ns()
        self._stamps_ns.append((before_ns + after_ns) // 2)
        self._rows.append(row)
        self._read_ns = max(self._read_ns, after_ns - before_ns)
        self._updates += row != self._last_row
        self._last_row = row
        self._first_ns = self._first_ns or before_ns
        self._last_ns = before_ns

    def block(self) -> dict[str, Any]:
        """The readings since the last block, as a record; begins a new one."""
        record = {
            "type": "power",
            "source": self.sensor.name,
            "first_index": self._blocked,
            "dropped": self.dropped,
            "t_dev_ns": self._stamps_ns,
            "read_ns": self._read_ns,
            "raw": {name: [row[i] for row in self._rows] for i, name in enumerate(self.sensor.columns)},
        }
        self._blocked += len(self._rows)
        self.dropped, self._read_ns = 0, 0
        self._stamps_ns, self._rows = [], []
        return record

    def rate(self) -> dict[str, Any]:
        """How fast the sensor really was, as a record. Call after the last block."""
        span_s = (self._last_ns - self._first_ns) * 1e-9
        return {
            "type": "power_rate",
            "source": self.sensor.name,
            "readings": self._blocked,
            "updates": self._updates,
            "reading_hz": (self._blocked - 1) / span_s if span_s else None,
            "update_hz": (self._updates - 1) / span_s if span_s else None,
        }
