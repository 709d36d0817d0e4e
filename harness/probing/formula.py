"""One round both ways, from what each candidate's phases cost. Pure arithmetic.

*Vanilla*: every candidate receives the model and trains all epochs; then the server chooses, and the chosen
upload. *Probing*: every candidate receives the model and trains one epoch; then the server chooses, the
others stop, and the chosen train on and upload. Whose probes count is the accounting, as in the emulator
(`emulator.round.accounting`); vanilla is always counted in full, because all of it happens.

Waiting for the server's choice is stated beside the accountings: the paper's formulas leave it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emulator import Accounting
from emulator.round import ClientCost, RoundCost, honest_time_s, round_costs, vanilla_cost
from power.profile import PhaseCosts

if TYPE_CHECKING:
    from numpy.typing import NDArray

COUNTED = {
    "vanilla": "download and all epochs of every candidate, upload of the chosen",
    Accounting.HONEST: "download and probe of every candidate; the other epochs and upload of the chosen",
    Accounting.SELECTED_ONLY: "the slowest candidate's probe in the time; energy of the chosen only",
    Accounting.FREE: "nothing of the probe: download, the other epochs and upload of the chosen",
}
"""What is in the numbers, for people."""


@dataclass(frozen=True, slots=True)
class RoundBothWays:
    """What one round costs.

    Attributes:
        vanilla: Without early exit.
        probing: With it, by accounting.
        vanilla_wait_j: Spent waiting for the slowest candidate before the choice; in no other number.
        probing_wait_j: The same with early exit.
    """

    vanilla: RoundCost
    probing: dict[Accounting, RoundCost]
    vanilla_wait_j: float
    probing_wait_j: float


def both_ways(costs: PhaseCosts, chosen: NDArray[np.bool_], local_epochs: int) -> RoundBothWays:
    """One round with ``local_epochs`` epochs, the probe included."""
    later = local_epochs - 1
    probed_s = costs.download_s + costs.probe_s
    trained_s = probed_s + later * costs.epoch_s
    everybody = np.ones_like(chosen)
    vanilla = vanilla_cost(_client_cost(costs, everybody, later), chosen)
    cost = _client_cost(costs, chosen, later)
    probing = round_costs(cost, chosen, honest_time_s(cost, chosen), probed=True)
    return RoundBothWays(
        vanilla=vanilla,
        probing=probing,
        vanilla_wait_j=float(costs.wait_w @ (_longest(trained_s) - trained_s)),
        probing_wait_j=float(costs.wait_w @ (_longest(probed_s) - probed_s)),
    )


def _client_cost(costs: PhaseCosts, going_on: NDArray[np.bool_], later: int) -> ClientCost:
    """The round as the emulator sees it: who does not go on neither trains on nor uploads."""
    probed_s = costs.download_s + costs.probe_s
    wait_s = _longest(probed_s) - probed_s
    return ClientCost(
        download_s=costs.download_s,
        probe_s=costs.probe_s,
        wait_s=wait_s,
        train_s=np.where(going_on, later * costs.epoch_s, 0.0),
        upload_s=np.where(going_on, costs.upload_s, 0.0),
        download_j=costs.download_j,
        probe_j=costs.probe_j,
        wait_j=costs.wait_w * wait_s,
        train_j=np.where(going_on, later * costs.epoch_j, 0.0),
        upload_j=np.where(going_on, costs.upload_j, 0.0),
    )


def _longest(seconds: NDArray[np.float64]) -> float:
    return float(seconds.max(initial=0.0))
