"""One worker of the background load: ``python -m device_agents.payload.load_worker JSON``.

It says ``ready``, works until its standard input ends, then prints what it used.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Iterator
from typing import Any, Callable

PERIOD_S = 0.1
"""Busy and asleep alternate at 10 Hz: slower than a scheduler's time slice, faster than an epoch."""

_COPY_BYTES = 1 << 20


def main() -> None:
    """Work until told to stop."""
    load = json.loads(sys.argv[1])
    burn = Copier(load["buffer_bytes"]) if load["kind"] == "memory" else Counter()
    os.write(1, b"ready\n")
    began_s = time.monotonic()
    cpu_began_s = time.process_time()
    for cpu in _schedule(load["steps"], began_s):
        _period(cpu, burn.work)
        if select.select([0], [], [], 0)[0]:  # the end of input: nothing is ever sent
            break
    report: dict[str, Any] = {
        "cpu_s": time.process_time() - cpu_began_s,
        "wall_s": time.monotonic() - began_s,
        "copied_bytes": burn.copied_bytes,
    }
    os.write(1, json.dumps(report).encode() + b"\n")


def _schedule(steps: list[dict[str, float]], began_s: float) -> Iterator[float]:
    """The share of each period, by the step that the time falls into."""
    length_s = sum(step["duration_s"] for step in steps)
    while True:
        left_s = (time.monotonic() - began_s) % length_s
        for step in steps:
            left_s -= step["duration_s"]
            if left_s < 0:
                break
        yield step["cpu"]


def _period(cpu: float, work: Callable[[], None]) -> None:
    """Use ``cpu`` of a period as processor time, or what the scheduler gives; sleep for the rest.

    Processor time is what is counted: an app that needs half a core still wants it when others compete.
    """
    end_s = time.monotonic() + PERIOD_S
    until_cpu_s = time.process_time() + cpu * PERIOD_S
    while time.process_time() < until_cpu_s and time.monotonic() < end_s:
        work()
    time.sleep(max(0.0, end_s - time.monotonic()))


class Counter:
    """Arithmetic in registers."""

    copied_bytes = 0

    def work(self) -> None:
        """A fraction of a millisecond."""
        total = 0
        for number in range(2000):
            total += number * number


class Copier:
    """Copies from one buffer to another, a megabyte at a time."""

    def __init__(self, size: int) -> None:
        # Written once, so that every page exists: an untouched buffer would be one shared page of zeros.
        self._source = memoryview(bytearray(b"\x55") * size)
        self._target = memoryview(bytearray(b"\xaa") * size)
        self._at = 0
        self.copied_bytes = 0

    def work(self) -> None:
        """Copy the next piece."""
        end = min(self._at + _COPY_BYTES, len(self._source))
        self._target[self._at : end] = self._source[self._at : end]
        self.copied_bytes += end - self._at
        self._at = end % len(self._source)


if __name__ == "__main__":
    main()
