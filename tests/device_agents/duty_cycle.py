"""A slower device: its agent is stopped for a share of every period, as a busy or throttled one would be."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Self

PERIOD_S = 0.04


class DutyCycle:
    """Lets a process run for ``share`` of the time.

    Attributes:
        stopped: When it stood still, as monotonic nanoseconds from and to.
    """

    def __init__(self, pid: int, share: float) -> None:
        self.stopped: list[tuple[int, int]] = []
        self._pid = pid
        self._stop_s = (1 - share) * PERIOD_S
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        if self._stop_s:
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        if self._stop_s:
            self._thread.join()

    def stopped_ns(self, start_ns: int, end_ns: int) -> int:
        """How long it stood still between two moments."""
        overlaps = (min(to, end_ns) - max(since, start_ns) for since, to in self.stopped)
        return sum(overlap for overlap in overlaps if overlap > 0)

    def _run(self) -> None:
        while not self._over.wait(PERIOD_S - self._stop_s):
            os.kill(self._pid, signal.SIGSTOP)
            try:
                while not self._stands_still():
                    time.sleep(0.0005)
                since_ns = time.monotonic_ns()
                time.sleep(self._stop_s)
                self.stopped.append((since_ns, time.monotonic_ns()))
            finally:
                os.kill(self._pid, signal.SIGCONT)

    def _stands_still(self) -> bool:
        """Every thread of it: a signal reaches them one after another."""
        tasks = Path(f"/proc/{self._pid}/task").iterdir()
        return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)
