"""Oracle: the K devices that would finish this round first, as things are now.

All but a lower bound for the duration of a round, R_T: it takes every local epoch to last as one would now,
and does not foresee how the load will change or who will leave. It uses true durations that no server knows,
so it is ``privileged`` and shown as such. Ties by device number; no switches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from emulator.round.view import ServerView
from emulator.selectors.base import Family, Selector
from emulator.selectors.top_k import top_k

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class SpeedOracle(Selector):
    """The fastest."""

    name: ClassVar[str] = "speed_oracle"
    family: ClassVar[Family] = Family.CONTROL
    needs: ClassVar[frozenset[str]] = frozenset({"true_epoch_s", "true_comm_s"})
    privileged: ClassVar[bool] = True

    def select(
        self, view: ServerView, candidates: NDArray[np.int64], k: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """The ``k`` shortest rounds."""
        duration_s = view.true_comm_s[candidates] + view.local_epochs * view.true_epoch_s[candidates]
        return candidates[top_k(-duration_s, k)]
