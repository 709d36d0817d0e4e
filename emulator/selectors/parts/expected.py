"""What a round would cost a device, as far as the server can tell from reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emulator.round.view import ServerView

if TYPE_CHECKING:
    from numpy.typing import NDArray


def epoch_s(view: ServerView) -> NDArray[np.float64]:
    """Duration of one local epoch: as last measured, else as estimated at registration."""
    return np.where(np.isnan(view.epoch_s), view.capability_s, view.epoch_s)


def round_s(view: ServerView) -> NDArray[np.float64]:
    """Duration of a whole round: download, all local epochs, upload."""
    return view.comm_s + view.local_epochs * epoch_s(view)


def round_j(view: ServerView) -> NDArray[np.float64]:
    """Energy of a whole round; NaN where no epoch has been measured."""
    return view.comm_j + view.local_epochs * view.epoch_j
