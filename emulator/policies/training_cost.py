"""What making a policy took, for its manifest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.selectors.base import Probe

if TYPE_CHECKING:
    from emulator.round.outcome import RoundOutcome
    from emulator.scenario.model import Scenario


@dataclass(slots=True)
class TrainingCost:
    """Local epochs and processor seconds, so far."""

    client_epochs: int = 0
    cpu_s: float = 0.0

    def __add__(self, other: TrainingCost) -> TrainingCost:
        return TrainingCost(self.client_epochs + other.client_epochs, self.cpu_s + other.cpu_s)

    def count(self, outcome: RoundOutcome, scenario: Scenario, probe: Probe) -> None:
        """Add a round's local epochs; ``probe`` is what its candidates did."""
        chosen = int(outcome.chosen.sum())
        epochs = scenario.protocol.local_epochs
        if outcome.round == 0:
            self.client_epochs += len(outcome.clients)
        elif probe is Probe.EPOCH:
            self.client_epochs += len(outcome.clients) + chosen * (epochs - 1)
        else:
            self.client_epochs += chosen * epochs

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the processor time of what happens inside."""
        begin_s = _cpu_s()
        yield
        self.cpu_s += _cpu_s() - begin_s


def _cpu_s() -> float:
    """Processor time of this process and of the workers that have ended."""
    return sum(os.times()[:4])
