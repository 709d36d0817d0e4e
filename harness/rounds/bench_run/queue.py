"""Which job is next: in the order of the plan, one per device and per meter, retries after their time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.bench.matrix import BenchJob, Cell
from harness.inventory import Inventory
from harness.rounds.retry import device_resource, meter_resource


@dataclass(slots=True)
class Waiting:
    """A job that has not begun, or begins again."""

    job: BenchJob
    not_before_s: float = 0.0


class JobQueue:
    """Jobs to do and resources in use. Not safe for threads by itself: its owner holds a lock.

    Args:
        jobs: To do, in order.
        inventory: Tells which meter a device has.
        parallel: How many at a time; 0 for as many as there are devices and meters.
        is_needed: Asked for an optional job when all earlier repetitions of its cell are over.
    """

    def __init__(
        self,
        jobs: Sequence[BenchJob],
        inventory: Inventory,
        *,
        parallel: int,
        is_needed: Callable[[BenchJob], bool],
    ) -> None:
        self._waiting = [Waiting(job) for job in jobs]
        self._running: dict[int, BenchJob] = {}
        self._inventory = inventory
        self._parallel = parallel
        self._is_needed = is_needed
        self._held_until_s: dict[str, float] = {}

    @property
    def is_empty(self) -> bool:
        """Nothing to do and nothing being done."""
        return not self._waiting and not self._running

    @property
    def left(self) -> int:
        """Jobs waiting or running."""
        return len(self._waiting) + len(self._running)

    def take(self) -> BenchJob | None:
        """The next job that can begin now; it holds its device and meter until `release`."""
        if self._parallel and len(self._running) >= self._parallel:
            return None
        now_s = time.monotonic()
        held = {key for key, until_s in self._held_until_s.items() if until_s > now_s}
        held |= {key for job in self._running.values() for key in self._resources(job.cell)}
        for waiting in list(self._waiting):
            job = waiting.job
            if waiting.not_before_s > now_s or held & self._resources(job.cell):
                continue
            if job.optional and not self._decide(waiting):
                continue
            self._waiting.remove(waiting)
            self._running[job.number] = job
            return job
        return None

    def release(self, job: BenchJob, *, again_in_s: float | None = None) -> None:
        """A job is over, or to be tried again after a while."""
        del self._running[job.number]
        if again_in_s is not None:
            self._waiting.append(Waiting(job, time.monotonic() + again_in_s))
            self._waiting.sort(key=lambda waiting: waiting.job.number)

    def hold(self, resource: str, seconds: float) -> None:
        """Nothing that needs a device or meter begins for a while."""
        self._held_until_s[resource] = time.monotonic() + seconds

    def drop(self, resource: str) -> list[BenchJob]:
        """Forget every waiting job that needs a device or meter."""
        dropped = [w.job for w in self._waiting if resource in self._resources(w.job.cell)]
        self._waiting = [w for w in self._waiting if w.job not in dropped]
        return dropped

    def _decide(self, waiting: Waiting) -> bool:
        """Whether an optional job can begin; one that is not needed leaves the queue."""
        job = waiting.job
        others = [*(w.job for w in self._waiting), *self._running.values()]
        if any(o.cell == job.cell and o.repetition < job.repetition for o in others):
            return False
        if self._is_needed(job):
            return True
        self._waiting.remove(waiting)
        return False

    def _resources(self, cell: Cell) -> set[str]:
        return {device_resource(cell.device), meter_resource(self._inventory, cell.device)}
