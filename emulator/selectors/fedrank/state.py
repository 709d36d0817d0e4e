"""The six numbers per device of the FedRank paper, as the network sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.selectors.neural.normalise import robust_log_z

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from emulator.round.view import ServerView

FEATURES = ("epoch_s", "comm_s", "epoch_j", "comm_j", "loss", "data_size")
"""T_comp, T_comm, E_comp, E_comm, L, D; compute costs are per epoch, measured in the probe."""


def device_states(view: ServerView, devices: NDArray[np.int64]) -> NDArray[np.float32]:
    """Normalised over these devices, in this round."""
    return robust_log_z([getattr(view, name)[devices] for name in FEATURES])
