"""Oracle: the K devices for which this round would cost the least energy, as things are now.

All but a lower bound for the energy of a round, R_E: it takes every local epoch to cost what one would now,
and does not foresee how the load will change or who will leave. It uses true costs that no server knows, so
it is ``privileged`` and shown as such. Ties by device number; no switches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from emulator.round.view import ServerView
from emulator.selectors.base import Family, Selector
from emulator.selectors.top_k import top_k

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class EnergyOracle(Selector):
    """The cheapest."""

    name: ClassVar[str] = "energy_oracle"
    family: ClassVar[Family] = Family.CONTROL
    needs: ClassVar[frozenset[str]] = frozenset({"true_epoch_j", "true_comm_j"})
    privileged: ClassVar[bool] = True

    def select(
        self, view: ServerView, candidates: NDArray[np.int64], k: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """The ``k`` cheapest rounds."""
        energy_j = view.true_comm_j[candidates] + view.local_epochs * view.true_epoch_j[candidates]
        return candidates[top_k(-energy_j, k)]
