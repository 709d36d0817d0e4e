"""Host time of a job that no marker accounts for: it may belong to the epochs beside it.

Between sending what an epoch needs and hearing that it is over, the host knows that time passed and not what
the device did with it. Epochs, setup, warm-up and the like account for it by their markers; what is left over
after the shortest round trip may have been training too. So does the part of a wait or an upload that lies on
the device's side of the message: a device that cuts its epochs short can call the rest a wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from device_agents.protocol import Phase

if TYPE_CHECKING:
    from device_agents import HostTimes
    from harness.evidence.capture import Phased

_TOLD = frozenset({Phase.WAIT, Phase.UPLOAD})
"""Phases that begin with a message: before the host has heard it they are the device's word."""


@dataclass(frozen=True, slots=True)
class Unaccounted:
    """What is left over between two messages with epochs between them.

    Attributes:
        epochs: The epochs' numbers.
        passed_s: Host time between the messages.
        trained_s: Of the epochs, by their markers.
        seconds: Left over.
        gaps: Where, start and end in host time; together they are longer by the shortest round trip.
        disguised_s: Before a first epoch, under another name (`harness.evidence.first_epoch`).
    """

    epochs: tuple[int, ...]
    passed_s: float
    trained_s: float
    seconds: float
    gaps: tuple[tuple[int, int], ...]
    disguised_s: float = 0.0

    @property
    def gaps_s(self) -> float:
        """Length of all gaps."""
        return sum(end_ns - start_ns for start_ns, end_ns in self.gaps) * 1e-9


def unaccounted(
    phases: Sequence[Phased], times: HostTimes, round_trips_ns: Sequence[int]
) -> tuple[Unaccounted, ...]:
    """What the phases of one job leave over, for each stretch between messages that has epochs.

    Args:
        phases: In host time.
        times: Of the same job.
        round_trips_ns: Of clock exchanges; the messages need the shortest of them at least.
    """
    sent_ns = [times.sent_ns, *(exchange.sent_ns for exchange in times.exchanges)]
    heard_ns = [*(exchange.heard_ns for exchange in times.exchanges), times.done_ns]
    trip_ns = min(round_trips_ns, default=0)
    found = []
    for start_ns, end_ns in zip(sent_ns, heard_ns, strict=True):
        epochs = [
            p for p in phases if p.phase is Phase.EPOCH and start_ns <= (p.start_ns + p.end_ns) // 2 < end_ns
        ]
        if not epochs:
            continue
        gaps = _gaps([p for p in phases if p.phase not in _TOLD], start_ns, end_ns)
        left_ns = max(0, sum(high - low for low, high in gaps) - trip_ns)
        found.append(
            Unaccounted(
                epochs=tuple(p.epoch for p in epochs),
                passed_s=(end_ns - start_ns) * 1e-9,
                trained_s=sum(p.duration_s for p in epochs),
                seconds=left_ns * 1e-9,
                gaps=gaps,
            )
        )
    return tuple(found)


def _gaps(phases: Sequence[Phased], start_ns: int, end_ns: int) -> tuple[tuple[int, int], ...]:
    """The parts of a stretch that no phase covers."""
    found, at_ns = [], start_ns
    for phase in sorted(phases, key=lambda phase: phase.start_ns):
        if phase.start_ns > at_ns:
            found.append((at_ns, min(phase.start_ns, end_ns)))
        at_ns = max(at_ns, phase.end_ns)
        if at_ns >= end_ns:
            break
    if at_ns < end_ns:
        found.append((at_ns, end_ns))
    return tuple((low, high) for low, high in found if high > low)
