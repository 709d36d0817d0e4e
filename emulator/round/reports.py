"""What devices report: collected in a round (`round_reports`), kept by the server (`Reported`).

What they tell at registration and check-in, and what only an oracle knows, is read off the world (`Truth`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.conditions import NEVER_NS
from emulator.fleet.world import World
from emulator.round.learning import RoundLearning
from emulator.round.outcome import ClientCost, Reports
from emulator.round.selector import Probe, Selector
from emulator.round.view import ALWAYS_SHOWN, PRIVILEGED_FIELDS, VIEW_FIELDS, Ids, ServerView

Array = NDArray[np.float64]

ROWS = frozenset({"bias_delta", "label_histogram"})
"""Fields with one column per class."""
COUNTED = frozenset({"last_round", "times_chosen", "failures", "check_ins"})
"""Fields that start at 0, not unknown."""
CHUNK = 1 << 17
"""Devices that register at a time: bounds the memory of a large fleet."""


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


class Truth:
    """Fills the fields of `Reported` that do not come from a round.

    Args:
        world: Where the devices are.
        needs: Fields that the selector reads; nothing else is worked out.
        label_histogram: True share of each class on each device.
    """

    def __init__(
        self, world: World, needs: frozenset[str], label_histogram: NDArray[np.float64] | None
    ) -> None:
        self._world = world
        self._needs = needs
        self._histogram = label_histogram
        self.check_ins = np.zeros(len(world.fleet) if "check_ins" in needs else 0)

    def register(self, reported: Reported) -> None:
        """Registration: the device's class, and a speed test of its network."""
        n = len(self._world.fleet)
        for begin in range(0, n, CHUNK):
            self._register(reported, np.arange(begin, min(n, begin + CHUNK)))
        if "label_histogram" in self._needs and self._histogram is not None:
            reported.put(np.arange(n), {"label_histogram": self._histogram})

    def _register(self, reported: Reported, devices: Ids) -> None:
        fleet = self._world.fleet
        if "capability_s" in self._needs:
            # Of the device's class, and not exactly: not what this one device is slower or faster.
            class_s = fleet.epoch(devices)[0] / fleet.slowness[devices]
            if self._world.registration is not None:
                class_s *= self._world.registration.factors(devices)
            reported.put(devices, {"capability_s": class_s})
        if self._needs & {"comm_s", "comm_j"}:
            down, up = self._world.network.speed_test(np.zeros(len(devices), np.int64), devices)
            comm_s, comm_j = down.duration_s + up.duration_s, down.energy_j + up.energy_j
            reported.put(devices, {"comm_s": comm_s, "comm_j": comm_j})

    def refresh(self, reported: Reported, now_ns: int, eligible: NDArray[np.bool_], number: int) -> None:
        """Check-in for a round."""
        if "check_ins" in self._needs:
            self.check_ins += eligible
            np.divide(self.check_ins, number, out=reported.fields["check_ins"])
        if not self._needs & {"battery", *PRIVILEGED_FIELDS}:
            return
        ids = np.flatnonzero(eligible)
        if "battery" in self._needs:
            reported.put(ids, {"battery": self._world.batteries.level(now_ns, ids)})
        if "leaves_s" in self._needs:
            leaves_ns = self._world.conditions.leaves_at(now_ns, ids)
            never = leaves_ns == NEVER_NS
            reported.put(ids, {"leaves_s": np.where(never, np.inf, (leaves_ns - now_ns) * 1e-9)})
        if self._needs & {"true_epoch_s", "true_epoch_j"}:
            fleet = self._world.fleet
            profile, at_ns = fleet.profile[ids], np.full(len(ids), now_ns)
            now = self._world.conditions.segments(at_ns, at_ns + 1, ids)
            slowdown, factor = self._world.slowing.factors(profile, ids, now)
            time, power = self._world.computing(now_ns, ids)
            epoch_s, epoch_j = fleet.epoch(ids)
            base_j = fleet.costs.base_w[profile] * epoch_s
            true_j = ((epoch_j - base_j) * power * factor + base_j * slowdown) * time
            reported.put(ids, {"true_epoch_s": epoch_s * time * slowdown, "true_epoch_j": true_j})
        if self._needs & {"true_comm_s", "true_comm_j"}:
            at_ns = np.full(len(ids), now_ns)
            down, up = self._world.network.download(at_ns, ids), self._world.network.upload(at_ns, ids)
            comm_s, comm_j = down.duration_s + up.duration_s, down.energy_j + up.energy_j
            reported.put(ids, {"true_comm_s": comm_s, "true_comm_j": comm_j})


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
