"""What follows from a failed attempt: again or never, for the job alone or for its device or meter.

An attempt that fails before the device is measured says something about the device or the meter: all its
jobs would fail alike. They wait together, and after as many failures in a row as a job has attempts, the
device is out of this session. A failure later on may be the job's own doing, and costs one of its attempts.

An agent that dies is tried once more: the memory may have been short. If it dies at the same work again (the
device, model and backend), the link is not to blame and no attempt will help.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from harness.bench.job.failures import retryable
from harness.bench.job.hooks import Stage
from harness.bench.matrix import BenchJob
from harness.bench.plan import Retry
from harness.inventory import Inventory
from joulefleet.errors import AgentDied, JoulefleetError, MeterError, MeterNotFound

MAX_WAIT_S = 600.0

MAX_DEATHS = 2
"""How often an agent may die at the same work, one time after the other."""

_BEFORE_MEASURING = frozenset({Stage.RESERVE, Stage.COOLDOWN, Stage.METER, Stage.CONNECT, Stage.DEPLOY})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done.

    Attributes:
        again: Whether the job is tried again.
        wait_s: Not before this long.
        resource: What has to wait too, or is out: a device or a meter; empty if only the job is concerned.
        out: Whether the resource is of no use in this session.
    """

    again: bool
    wait_s: float = 0.0
    resource: str = ""
    out: bool = False


class RetryPolicy:
    """Counts failures of jobs, devices and meters. May be asked from any thread."""

    def __init__(self, retry: Retry, inventory: Inventory) -> None:
        self._retry = retry
        self._inventory = inventory
        self._lock = threading.Lock()
        self._tries: dict[int, int] = {}
        self._in_a_row: dict[str, int] = {}
        self._seen: set[str] = set()
        self._deaths: dict[tuple[str, str, str], int] = {}

    def reached(self, job: BenchJob, stage: Stage) -> None:
        """A job got this far: what it went through works."""
        with self._lock:
            if stage is Stage.CONNECT:
                self._works(meter_resource(self._inventory, job.cell.device))
            elif stage is Stage.IDLE_BEFORE:
                self._works(device_resource(job.cell.device))
            elif stage is Stage.IDLE_AFTER:
                self._deaths.pop(_work(job), None)

    def verdict(self, job: BenchJob, stage: Stage, error: BaseException) -> Verdict:
        """What follows from an attempt that failed in a stage."""
        with self._lock:
            resource = self._concerned(job, error)
            if isinstance(error, AgentDied):
                deaths = self._deaths[_work(job)] = self._deaths.get(_work(job), 0) + 1
                if deaths >= MAX_DEATHS:
                    return Verdict(again=False)
            if resource and stage in _BEFORE_MEASURING:
                return self._resource_failed(resource, error)
            tries = self._tries[job.number] = self._tries.get(job.number, 0) + 1
            if not retryable(error) or tries >= self._retry.attempts:
                return Verdict(again=False)
            return Verdict(again=True, wait_s=self._wait_s(tries), resource=resource)

    def _works(self, resource: str) -> None:
        self._seen.add(resource)
        self._in_a_row.pop(resource, None)

    def _concerned(self, job: BenchJob, error: BaseException) -> str:
        if isinstance(error, MeterError):
            return meter_resource(self._inventory, job.cell.device)
        return device_resource(job.cell.device) if isinstance(error, JoulefleetError) else ""

    def _resource_failed(self, resource: str, error: BaseException) -> Verdict:
        failures = self._in_a_row[resource] = self._in_a_row.get(resource, 0) + 1
        # A meter that is not there is a mistake in the inventory, unless it was there before.
        replug = isinstance(error, MeterNotFound) and resource in self._seen
        if not (retryable(error) or replug) or failures >= self._retry.attempts:
            return Verdict(again=False, resource=resource, out=True)
        return Verdict(again=True, wait_s=self._wait_s(failures), resource=resource)

    def _wait_s(self, failures: int) -> float:
        return min(MAX_WAIT_S, self._retry.wait_s * float(2 ** (failures - 1)))


def _work(job: BenchJob) -> tuple[str, str, str]:
    """What an agent dies of: the device, what it trains, and with what."""
    return job.cell.device, job.cell.model, job.cell.backend


def device_resource(device: str) -> str:
    """What only one job can use at a time, as the queue calls it."""
    return f"device {device}"


def meter_resource(inventory: Inventory, device: str) -> str:
    """The same for the meter of a device."""
    return f"meter {inventory.meter_key(device)}"
