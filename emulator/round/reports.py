"""What devices report: collected in a round (`round_reports`), kept by the server (`Reported`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.round.learning import RoundLearning
from emulator.round.outcome import ClientCost, Reports
from emulator.round.selector import Probe, Selector
from emulator.round.view import ALWAYS_SHOWN, VIEW_FIELDS, Ids, ServerView

Array = NDArray[np.float64]

ROWS = frozenset({"bias_delta", "label_histogram"})
"""Fields with one column per class."""
COUNTED = frozenset({"last_round", "times_chosen", "failures", "check_ins"})
"""Fields that start at 0, not unknown."""


class Reported:
    """One array per field that the selector reads; all others are NaN at no cost.

    Args:
        data_size: Training samples of each device, known from registration.
        needs: Names of the fields to keep.
        classes: Columns of the fields in `ROWS`.
    """

    def __init__(self, data_size: NDArray[np.int64], needs: frozenset[str], classes: int) -> None:
        self._n = len(data_size)
        self._data_size = _read_only(data_size)
        shapes = {
            name: (self._n, classes) if name in ROWS else (self._n,) for name in VIEW_FIELDS - ALWAYS_SHOWN
        }
        self.fields = {
            name: np.full(shapes[name], 0.0 if name in COUNTED else np.nan)
            for name in sorted(needs - ALWAYS_SHOWN)
        }
        self._shown = {name: _read_only(values) for name, values in self.fields.items()}
        self._hidden = {
            name: np.broadcast_to(np.nan, shapes[name]) for name in sorted(shapes) if name not in self.fields
        }

    def view(self, eligible: NDArray[np.bool_], **scalars: Any) -> ServerView:
        """What is known now; its arrays change in place with later reports."""
        fields: dict[str, Any] = {**self._shown, **self._hidden, **scalars}
        return ServerView(eligible=_read_only(eligible), data_size=self._data_size, **fields)

    def put(self, devices: Ids, values: Mapping[str, NDArray[np.float64]]) -> None:
        """Take reports in; what a device did not report (NaN) leaves what is known."""
        for name, fresh in values.items():
            if name in self.fields:
                known = ~np.isnan(fresh) if fresh.ndim == 1 else ~np.isnan(fresh).any(1)
                self.fields[name][devices[known]] = fresh[known]

    def count(self, number: int, chosen: Ids, finished: Ids) -> None:
        """Who was chosen in a round, and who finished it."""
        if "times_chosen" in self.fields:
            self.fields["times_chosen"][chosen] += 1
        if "last_round" in self.fields and number:
            self.fields["last_round"][finished] = number

    def count_failures(self, participants: Ids, failed: NDArray[np.bool_]) -> None:
        """Who left, was late or diverged in a row; whoever did what was asked begins anew."""
        if "failures" in self.fields:
            failures = self.fields["failures"]
            failures[participants] = np.where(failed, failures[participants] + 1, 0)

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return {name: values.copy() for name, values in self.fields.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        for name, values in self.fields.items():
            values[...] = state[name]


def _read_only(values: NDArray[Any]) -> NDArray[Any]:
    view = values.view()
    view.flags.writeable = False
    return view


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
        measured: Who reported how long an epoch took.
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
    found = {name: getattr(reports, name) for name in (*names, "local_accuracy", "bias_delta")}
    reported.put(devices, {name: values for name, values in found.items() if values is not None})


def _only(values: Array, places: Ids) -> Array:
    """The values at some places, NaN elsewhere."""
    found = np.full(len(values), np.nan)
    found[places] = values[places]
    return found
