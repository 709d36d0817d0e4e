"""FedProx: random devices whose local objective holds a proximal term, optionally with partial work.

Implements Li et al., MLSys 2020: the local objective F_i(w) + (mu/2) |w - w_t|^2 (its equation 2), and
devices that do fewer epochs when slow (its gamma-inexactness). The selection is that of FedAvg.

Switches:
    work: ``prox_only`` (default): everyone trains all local epochs. ``partial``: device i trains
        e_i = clip(floor((T - T_comm,i) / T_epoch,i), 1, l_ep) epochs, T the time budget of a round.
    mu: Weight of the proximal term.

Deviations: the original draws the number of epochs of stragglers at random; ``partial`` derives it from what
the server knows of each device, so that the same device does the same work. The default mu = 0.01 is one
step of the paper's grid {0.001, 0.01, 0.1, 1}.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from emulator.round.selector import Family
from emulator.round.view import Ids, ServerView
from emulator.selectors.fedavg import FedAvg
from emulator.selectors.parts.estimates import epoch_s
from emulator.selectors.parts.options import one_of, within

WORK = ("prox_only", "partial")


class FedProx(FedAvg):
    """Uniform random selection with a proximal term."""

    name: ClassVar[str] = "fedprox"
    family: ClassVar[Family] = Family.RANDOM
    paper: ClassVar[str] = "Li et al., MLSys 2020"
    deviations: ClassVar[str] = "partial work follows the reported speed instead of a random draw"
    needs: ClassVar[frozenset[str]] = frozenset({"comm_s", "epoch_s", "capability_s"})

    def __init__(self, *, mu: float = 0.01, work: str = "prox_only") -> None:
        within(self.name, "mu", mu, 0.0, 1e6)
        one_of(self.name, "work", work, WORK)
        self.proximal_mu = mu
        self.work = work

    def epochs(self, view: ServerView, chosen: Ids) -> NDArray[np.int64]:
        """All of them, or with ``partial`` as many as fit into the time budget, at least one.

        A device of whose speed nothing is known trains all of them.
        """
        if self.work == "prox_only" or not np.isfinite(view.time_budget_s):
            return super().epochs(view, chosen)
        fit = (view.time_budget_s - view.comm_s[chosen]) / np.maximum(epoch_s(view)[chosen], 1e-9)
        fit = np.nan_to_num(np.floor(fit), nan=view.local_epochs)  # NaN has no integer
        return np.clip(fit, 1, view.local_epochs).astype(np.int64)
