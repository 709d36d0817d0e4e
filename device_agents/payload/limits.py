"""What a device must not exceed during a job. It watches itself, so that a lost link loses no safety."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from device_agents.payload.job import JobSpec
    from device_agents.payload.recording.telemetry_sources import Sample


class Limits:
    """Looks at every telemetry sample and ends the job when a limit is passed.

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
        """One sample. The first limit passed is the one that is told."""
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
