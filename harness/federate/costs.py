"""What a round on the bench came to: who finished, what it took each participant, how long it lasted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emulator import Fate
from emulator.round import ClientCost, honest_time_s
from harness.federate.participant import FederatedParticipant
from harness.rounds.measured import client_cost
from harness.rounds.server import RoundServer
from joulefleet.provenance import Origin, weakest

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredCosts:
    """Measured parts of a round, one entry per participant.

    Attributes:
        cost: Seconds and joules by phase; zero for those whose part failed, of which nothing is known.
        chosen: Who was told to train.
        honest_s: Slowest to the choice, then slowest from there on; the phases of the round alone.
        elapsed_ns: From the first download to the last end, with setup and messages.
        origin: The weakest claim among the instruments; None if nothing was measured.
        notes: What a reader of the numbers should know.
    """

    cost: ClientCost
    chosen: NDArray[np.bool_]
    honest_s: float
    elapsed_ns: int
    origin: Origin | None
    notes: tuple[str, ...]


def measured_costs(
    participants: Sequence[FederatedParticipant], chosen: NDArray[np.bool_], *, probed: bool
) -> MeasuredCosts:
    """Add up what was measured of a round.

    Args:
        participants: As `play_round` left them.
        chosen: Who was told to train.
        probed: Whether the first epoch came before the choice; otherwise it counts as training.
    """
    parts = [one.part for one in participants]
    cost = client_cost(parts, probed=probed)
    known = [part for part in parts if part is not None]
    began_ns = min((part.began_ns for part in known), default=0)
    elapsed_ns = max((part.ended_ns for part in known), default=0) - began_ns
    honest_s = honest_time_s(cost, chosen, probed=probed)
    return MeasuredCosts(
        cost=cost,
        chosen=chosen,
        honest_s=honest_s,
        elapsed_ns=max(elapsed_ns, round(honest_s * 1e9)),
        origin=_origin(participants),
        notes=tuple(problem for part in known for problem in part.problems),
    )


def _origin(participants: Sequence[FederatedParticipant]) -> Origin | None:
    origins = [one.capture.provenance().origin for one in participants if one.capture is not None]
    return weakest(origins) if origins else None


def fate_of(one: FederatedParticipant, server: RoundServer, *, finite: bool, in_time: bool) -> Fate:
    """How the round ended for a participant.

    Args:
        one: The participant.
        server: Of the round.
        finite: Whether all that it reported and sent are numbers.
        in_time: Whether it had reported when the choice was made.
    """
    if one.error is not None:
        return Fate.LEFT
    if not finite:
        return Fate.DIVERGED
    if not in_time:
        return Fate.DEADLINE
    if server.chosen is not None and one.device not in server.chosen:
        return Fate.REJECTED
    return Fate.LEFT if one.model is None else Fate.FINISHED
