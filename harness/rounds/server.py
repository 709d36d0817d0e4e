"""The server of one round: lets all candidates begin together, hears their probes, says who goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from device_agents.protocol import ProbeDone
from harness.bench.job.ending import Ending
from harness.probing.gathering import POLL_S, Gathering
from joulefleet.errors import CalledOff

Choose = Callable[[Mapping[str, float]], frozenset[str]]


class RoundServer(Gathering):
    """Candidates talk to it, each from a thread of its own.

    Args:
        candidates: Who takes part.
        choose: Given the reports, who goes on; None in a vanilla round, in which everybody does, at once.
        start_timeout_s: How long the first to be ready waits for the others.
        report_timeout_s: How long the first to report waits for the others.

    Attributes:
        reports: Duration of the first epoch in seconds, by device.
        chosen: Who was told to go on; None before the decision, and in a vanilla round.
        late: Who had not reported when the server stopped waiting.
    """

    def __init__(
        self,
        candidates: Sequence[str],
        choose: Choose | None,
        *,
        start_timeout_s: float,
        report_timeout_s: float,
    ) -> None:
        super().__init__(candidates, start_timeout_s=start_timeout_s, report_timeout_s=report_timeout_s)
        self._choose = choose
        self.reports: dict[str, float] = {}
        self.chosen: frozenset[str] | None = None
        self.late: frozenset[str] = frozenset()

    def wait_for_all(self, device: str, ending: Ending) -> None:
        """A candidate is ready; returns when all are.

        Raises:
            CalledOff: Somebody will not come.
        """
        with self._changed:
            self._ready.add(device)
            self._start_by_s = self._start_by_s or time.monotonic() + self._start_timeout_s
            self._began = self._began or (self._ready == self._devices and not self._gone)
            self._changed.notify_all()
            while not self._began and not self._gone and time.monotonic() < self._start_by_s:
                self._changed.wait(POLL_S)
                ending.check()
            if not self._began:
                missing = ", ".join(sorted(self._devices - self._ready | self._gone))
                raise CalledOff(f"the round did not begin: {missing} not ready")

    def decide(self, device: str, probe: ProbeDone, ending: Ending) -> bool:
        """A candidate reports its probe; returns, when all have reported, whether it goes on."""
        with self._changed:
            self.reports[device] = probe.duration_ns * 1e-9
            if self._choose is None:
                return True
            self._report_by_s = self._report_by_s or time.monotonic() + self._report_timeout_s
            while not self._is_decided(self._choose):
                if ending.reason is not None:
                    return False
                self._changed.wait(POLL_S)
            return self.chosen is not None and device in self.chosen

    def _is_decided(self, choose: Choose) -> bool:
        """Decide, if it is time to."""
        if self.chosen is None:
            awaited = self._devices - set(self.reports) - self._gone
            in_time = self._report_by_s is None or time.monotonic() < self._report_by_s
            if awaited and in_time:
                return False
            self.late = awaited
            self.chosen = choose(self.reports)
            self._changed.notify_all()
        return True
