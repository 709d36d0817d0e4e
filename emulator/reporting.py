"""What participants tell the server: after their probe, and when the round is over."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from emulator.round.learning import RoundLearning
from emulator.round.outcome import ClientCost, Reports
from emulator.round.reports import Reported
from emulator.selectors.base import Probe, Selector

Ids = NDArray[np.int64]
Array = NDArray[np.float64]


def probe_reports(cost: ClientCost, learning: RoundLearning, there: Ids, probe: Probe) -> Mapping[str, Array]:
    """Reports of the candidates who finished their probe and are still there."""
    losses = {"loss": learning.loss, "loss_rms": learning.loss_rms, "global_loss": learning.global_loss}
    if probe is not Probe.EPOCH:
        return losses
    return {**losses, "epoch_s": _only(cost.probe_s, there), "epoch_j": _only(cost.probe_j, there)}


def round_reports(
    cost: ClientCost,
    learning: RoundLearning,
    selector: Selector,
    *,
    measured: Ids,
    finished: Ids,
    epochs: Array,
    weights: NDArray[np.float32],
) -> Reports:
    """Everything that was reported in a round.

    Args:
        cost: Of the participants.
        learning: Likewise.
        selector: What it asks for is worked out.
        measured: Who told how long an epoch took.
        finished: Who sent an update.
        epochs: How many epochs' work is behind what each measured; 0 for those who measured their probe.
        weights: The new global model.
    """
    needs = selector.needs
    probed = epochs == 0
    count = np.maximum(epochs, 1)
    return Reports(
        epoch_s=_only(np.where(probed, cost.probe_s, cost.train_s / count), measured),
        epoch_j=_only(np.where(probed, cost.probe_j, cost.train_j / count), measured),
        comm_s=_only(cost.download_s + cost.upload_s, finished),
        comm_j=_only(cost.download_j + cost.upload_j, finished),
        upload_j=_only(cost.upload_j, finished),
        loss=learning.loss,
        loss_rms=learning.loss_rms,
        global_loss=learning.global_loss if "global_loss" in needs else None,
        local_accuracy=learning.local_accuracy(finished, weights) if "local_accuracy" in needs else None,
        bias_delta=learning.bias_delta(finished) if "bias_delta" in needs else None,
        weights=learning.rows(finished) if selector.needs_weights else None,
    )


def file_reports(reported: Reported, devices: Ids, reports: Reports) -> None:
    """Let the server know."""
    names = ("epoch_s", "epoch_j", "comm_s", "comm_j", "upload_j", "loss", "loss_rms", "global_loss")
    told = {name: getattr(reports, name) for name in (*names, "local_accuracy", "bias_delta")}
    reported.put(devices, {name: values for name, values in told.items() if values is not None})


def _only(values: Array, places: Ids) -> Array:
    """The values at some places, NaN elsewhere."""
    found = np.full(len(values), np.nan)
    found[places] = values[places]
    return found
