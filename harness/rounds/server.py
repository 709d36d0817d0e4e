"""The server of one round: lets the devices begin together, hears their probes, says who goes on."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from device_agents.protocol import ProbeDone
from harness.bench.job.hooks import Ending
from joulefleet.errors import CalledOff

POLL_S = 0.2
"""How soon a waiting device notices that its job has to end; decisions wake it at once."""


@dataclass(frozen=True, slots=True)
class Report:
    """What the server knows of a device after its first epoch.

    Attributes:
        probe: As the device reported it.
        epoch_j: Energy of the epoch as the meter showed it so far; NaN if it did not.
    """

    probe: ProbeDone
    epoch_j: float = math.nan

    @property
    def duration_s(self) -> float:
        """Of the first epoch."""
        return self.probe.duration_ns * 1e-9

    @property
    def is_finite(self) -> bool:
        """Whether the training has not diverged."""
        return self.probe.loss is not None

    @property
    def loss(self) -> float:
        """NaN if it is not known."""
        return math.nan if self.probe.loss is None else self.probe.loss

    @property
    def loss_rms(self) -> float:
        """Likewise."""
        return math.nan if self.probe.loss_rms is None else self.probe.loss_rms


Choose = Callable[[Mapping[str, Report]], frozenset[str]]
"""Given the reports by device, who goes on."""


class RoundServer:
    """Devices talk to it, each from a thread of its own.

    Args:
        devices: Who takes part.
        choose: Who goes on after the first epoch; None if nobody is told to stop.
        start_timeout_s: How long the first to be ready waits for the others.
        report_timeout_s: How long the first to report waits for the others.
        needs_all: Whether a round without one of them is worth nothing, so that it does not begin. Otherwise
            it goes on without those who fail or are late.

    Attributes:
        reports: By device.
        chosen: Who was told to go on; None before the decision, and without one.
        late: Who had not reported when the server stopped waiting.
        failure: What went wrong with the choice itself.
    """

    def __init__(
        self,
        devices: Sequence[str],
        choose: Choose | None,
        *,
        start_timeout_s: float,
        report_timeout_s: float,
        needs_all: bool = False,
    ) -> None:
        self._devices = frozenset(devices)
        self._choose = choose
        self._start_timeout_s = start_timeout_s
        self._report_timeout_s = report_timeout_s
        self._needs_all = needs_all
        self._changed = threading.Condition()
        self._ready: set[str] = set()
        self._gone: set[str] = set()
        self._began = False
        self._called_off = ""
        self._start_by_s: float | None = None
        self._report_by_s: float | None = None
        self.reports: dict[str, Report] = {}
        self.chosen: frozenset[str] | None = None
        self.late: frozenset[str] = frozenset()
        self.failure: Exception | None = None

    @property
    def chooses(self) -> bool:
        """Whether anybody may be told to stop after the first epoch."""
        return self._choose is not None

    def lost(self, device: str) -> None:
        """A device has failed; nobody waits for it any longer."""
        with self._changed:
            self._gone.add(device)
            self._changed.notify_all()

    def wait_for_all(self, device: str, ending: Ending) -> None:
        """A device is ready; returns when the round begins.

        Raises:
            CalledOff: It does not begin, or has begun without this device.
        """
        with self._changed:
            if self._began:
                raise CalledOff("it was not ready in time, and the round began without it")
            self._ready.add(device)
            self._start_by_s = self._start_by_s or time.monotonic() + self._start_timeout_s
            self._changed.notify_all()
            while not self._began:
                self._begin_if_time(in_time=time.monotonic() < self._start_by_s)
                if not self._began:
                    self._changed.wait(POLL_S)
                    ending.check()

    def _begin_if_time(self, *, in_time: bool) -> None:
        missing = self._devices - self._ready - self._gone
        if self._needs_all and (self._gone or (missing and not in_time)):
            who = ", ".join(sorted(missing | self._gone))
            self._called_off = self._called_off or f"the round did not begin: {who} not ready"
        if self._called_off:
            raise CalledOff(self._called_off)
        if not missing or not in_time:
            self._began = True
            self._gone |= missing
            self._changed.notify_all()

    def decide(self, device: str, report: Report, ending: Ending) -> bool:
        """A device reports its first epoch; returns, when all have, whether it goes on."""
        with self._changed:
            self.reports[device] = report
            if self._choose is None:
                return True
            self._report_by_s = self._report_by_s or time.monotonic() + self._report_timeout_s
            self._changed.notify_all()
            while self.chosen is None:
                if ending.reason is not None:
                    return False
                awaited = self._devices - set(self.reports) - self._gone
                if not awaited or time.monotonic() >= self._report_by_s:
                    self.late = awaited
                    self._make_choice(self._choose)
                else:
                    self._changed.wait(POLL_S)
            return device in self.chosen

    def _make_choice(self, choose: Choose) -> None:
        there = {name: report for name, report in self.reports.items() if name not in self._gone}
        try:
            self.chosen = choose(there)
        except Exception as error:  # it belongs to the run, not to the device whose thread this is
            self.failure, self.chosen = error, frozenset()
        self._changed.notify_all()
