"""The server of one round: lets the devices begin together, hears their probes, says who goes on.

Unlike `harness.rounds.server` it goes on without those who fail or are late: a federated round does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from device_agents.protocol import ProbeDone
from harness.bench.job.ending import Ending
from harness.probing.gathering import POLL_S, Gathering
from joulefleet.errors import CalledOff


@dataclass(frozen=True, slots=True)
class Report:
    """What the server knows of a device after its first epoch.

    Attributes:
        probe: As the device reported it.
        epoch_j: Energy of the epoch as the meter showed it so far; NaN if it did not.
    """

    probe: ProbeDone
    epoch_j: float

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


class FederatedServer(Gathering):
    """Devices talk to it, each from a thread of its own.

    Args:
        devices: Who takes part.
        choose: Given the reports, who goes on; None if everybody was chosen before.
        start_timeout_s: How long the first to be ready waits for the others.
        report_timeout_s: How long the first to report waits for the others.

    Attributes:
        reports: By device.
        chosen: Who was told to go on; None before the decision.
        failure: What went wrong with the choice itself.
    """

    def __init__(
        self,
        devices: Sequence[str],
        choose: Choose | None,
        *,
        start_timeout_s: float,
        report_timeout_s: float,
    ) -> None:
        super().__init__(devices, start_timeout_s=start_timeout_s, report_timeout_s=report_timeout_s)
        self._choose = choose
        self.reports: dict[str, Report] = {}
        self.chosen: frozenset[str] | None = None
        self.failure: Exception | None = None

    @property
    def chooses(self) -> bool:
        """Whether anybody may be told to stop after the first epoch."""
        return self._choose is not None

    def wait_for_all(self, device: str, ending: Ending) -> None:
        """A device is ready; returns when all are, or when those who are not have used up their time.

        Raises:
            CalledOff: The others have begun without it.
        """
        with self._changed:
            if self._began:
                raise CalledOff("it was not ready in time, and the round began without it")
            self._ready.add(device)
            self._start_by_s = self._start_by_s or time.monotonic() + self._start_timeout_s
            self._changed.notify_all()
            while not self._began:
                waits = self._devices - self._ready - self._gone
                if not waits or time.monotonic() >= self._start_by_s:
                    self._began = True
                    self._gone |= waits
                    self._changed.notify_all()
                    return
                self._changed.wait(POLL_S)
                ending.check()

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
                if self._is_time():
                    self._make_choice(self._choose)
                else:
                    self._changed.wait(POLL_S)
            return device in self.chosen

    def _is_time(self) -> bool:
        waits = self._devices - set(self.reports) - self._gone
        return not waits or self._report_by_s is None or time.monotonic() >= self._report_by_s

    def _make_choice(self, choose: Choose) -> None:
        there = {name: report for name, report in self.reports.items() if name not in self._gone}
        try:
            self.chosen = choose(there)
        except Exception as error:  # it belongs to the run, not to the device whose thread this is
            self.failure, self.chosen = error, frozenset()
        self._changed.notify_all()
