"""Telemetry: the state of the device at 1 to 5 Hz on its own clock, into the job's telemetry journal.

One ``sources`` record names the columns and what is missing; each ``telemetry`` record then holds the values
in the same order. In non-quiet mode the records are also sent as they happen.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any, Callable

from device_agents.payload.faults import JobFault
from device_agents.payload.recording.periodic import Periodic
from device_agents.payload.recording.telemetry_sources import Sample, discover

if TYPE_CHECKING:
    from pathlib import Path

    from device_agents.payload.job import JobSpec
    from device_agents.payload.link.streams import Sender
    from device_agents.payload.recording.journal import JobJournal


class TelemetryRecorder(Periodic):
    """Samples all sources of a device into a journal, and holds each sample against the limits.

    A journal that takes no more ends it, unless there are limits to watch: then it goes on without records.
    """

    def __init__(
        self, root: Path, rate_hz: float, journal: JobJournal, sender: Sender, limits: Limits | None = None
    ) -> None:
        super().__init__("telemetry", 1 / rate_hz)
        self._limits = limits
        self._journal = journal
        self._sender = sender
        self._sources, self._missing = discover(root)
        self._summary = Summary()
        self._summary_lock = threading.Lock()
        self._lost: set[str] = set()

    def start(self) -> None:
        """Say what there is, then sample."""
        columns: dict[str, list[str]] = {}
        for source in self._sources:
            columns.update(source.columns)
        self._record({"type": "sources", "columns": columns, "missing": self._missing})
        super().start()

    def stop(self) -> None:
        """Stop sampling and release the files."""
        super().stop()
        for source in self._sources:
            source.close()

    def begin_summary(self) -> None:
        """Summarise from here on."""
        with self._summary_lock:
            self._summary = Summary()

    def summary(self) -> dict[str, Any]:
        """What the samples since `begin_summary` say."""
        with self._summary_lock:
            return self._summary.result()

    def turn(self) -> None:
        """One sample."""
        t_dev_ns = time.monotonic_ns()
        values: Sample = {}
        for source in self._sources:
            values.update(source.sample())
        if self._limits is not None:
            self._limits.check(values)  # first: a full disk refuses what comes after
        with self._summary_lock:
            self._summary.add(values)
        if self.failure is None:
            self._keep(t_dev_ns, values)

    def _keep(self, t_dev_ns: int, values: Sample) -> None:
        try:
            self._note_lost(values)
            self._record({"type": "telemetry", "t_dev_ns": t_dev_ns, "values": values})
        except JobFault as fault:
            if self._limits is None:
                raise
            self.failure = fault

    def _note_lost(self, sample: Sample) -> None:
        """A source that stops answering is reported once."""
        for name, values in sample.items():
            if name not in self._lost and all(value is None for value in values):
                self._lost.add(name)
                self._record({"type": "source_lost", "column": name, "t_dev_ns": time.monotonic_ns()})

    def _record(self, record: dict[str, Any]) -> None:
        self._journal.append(record)
        self._sender.offer(record)


class Summary:
    """A few numbers about a stretch of samples, in constant memory."""

    def __init__(self) -> None:
        self._samples = 0
        self._first: Sample = {}
        self._last: Sample = {}
        self._freq_sum_hz = 0.0
        self._freq_samples = 0
        self._hottest_c: float | None = None

    def add(self, values: Sample) -> None:
        """One more sample."""
        self._samples += 1
        self._first = self._first or values
        self._last = values
        frequencies = _known(values, "cpu_freq_hz")
        if frequencies:
            self._freq_sum_hz += sum(frequencies) / len(frequencies)
            self._freq_samples += 1
        hottest_c = max(_known(values, "temperature_c"), default=None)
        if hottest_c is not None:
            self._hottest_c = hottest_c if self._hottest_c is None else max(self._hottest_c, hottest_c)

    def result(self) -> dict[str, Any]:
        """Only what is known; ``samples`` always."""
        found = {
            "cpu_freq_hz": self._freq_sum_hz / self._freq_samples if self._freq_samples else None,
            "cpu_load": self._load(),
            "temperature_c": self._hottest_c,
            "throttled": self._throttled(),
            "memory_available_bytes": min(_known(self._last, "memory_available_bytes"), default=None),
            "battery_level": min(_known(self._last, "battery_level"), default=None),
        }
        return {"samples": self._samples, **{name: v for name, v in found.items() if v is not None}}

    def _load(self) -> float | None:
        busy_s, idle_s = self._growth("cpu_busy_s"), self._growth("cpu_idle_s")
        total_s = (busy_s or 0.0) + (idle_s or 0.0)
        return None if busy_s is None or total_s <= 0 else busy_s / total_s

    def _growth(self, name: str) -> float | None:
        before, after = _known(self._first, name), _known(self._last, name)
        return sum(after) - sum(before) if before and len(before) == len(after) else None

    def _throttled(self) -> bool | None:
        """Whether something was slowed down because of heat or voltage; None if nothing would tell."""
        cooling, flags = _known(self._last, "cpu_cooling_state"), _known(self._last, "throttle_flags")
        counted = self._growth("throttle_count")
        if not cooling and not flags and counted is None:
            return None
        slowed = any(int(flag) & 0b1111 for flag in flags)  # bits 16 and up are history
        return slowed or any(state > 0 for state in cooling) or bool(counted)


class Limits:
    """Looks at every telemetry sample and ends the job when a limit is passed.

    The device watches itself, so that a lost link loses no safety.

    Attributes:
        given: Whether the job has any.
        message: Which limit was passed; empty if none was.
    """

    def __init__(self, spec: JobSpec, end_job: Callable[[], None]) -> None:
        self._temperature_max_c = spec.temperature_max_c
        self._battery_min_level = spec.battery_min_level
        self._end_job = end_job
        self.given = spec.temperature_max_c is not None or spec.battery_min_level is not None
        self.message = ""

    def check(self, values: Sample) -> None:
        """One sample. The first limit passed is the one that is reported."""
        message = self._passed(values)
        if message and not self.message:
            self.message = message
            self._end_job()

    def _passed(self, values: Sample) -> str:
        hottest_c = max(_known(values, "temperature_c", "battery_temperature_c"), default=-math.inf)
        if self._temperature_max_c is not None and hottest_c > self._temperature_max_c:
            return f"{hottest_c:g} degrees Celsius, above {self._temperature_max_c:g}"
        level = min(_known(values, "battery_level"), default=math.inf)
        if self._battery_min_level is not None and level < self._battery_min_level:
            return f"battery at {level:.0%}, below {self._battery_min_level:.0%}"
        return ""


def _known(values: Sample, *names: str) -> list[float]:
    return [value for name in names for value in values.get(name, []) if value is not None]
