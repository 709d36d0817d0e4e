"""`RoundOutcome`: who took part in a round, how it ended for each, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Fate(StrEnum):
    """How a round ended for a device."""

    FINISHED = "finished"
    """Its update was aggregated."""
    REJECTED = "rejected"
    """It was probed and told to stop."""
    PROFILED = "profiled"
    """It did what a method asks of everybody once; nobody was chosen."""
    LEFT = "left"
    """Its user took it away: the trace says that it is no longer eligible."""
    BATTERY = "battery"
    """Its battery ended."""
    DEADLINE = "deadline"
    """It was still at work when the round was closed."""
    SURPLUS = "surplus"
    """Over-commitment: enough others had finished before it."""
    DIVERGED = "diverged"
    """It reported a loss or weights that are not finite; never aggregated."""


FAILURES = frozenset({Fate.LEFT, Fate.DEADLINE, Fate.DIVERGED})
"""Fates of devices that did not do what they were asked."""


class Accounting(StrEnum):
    """Whose probes count in R_T and R_E; `docs/selectors-notes.md`, items A3 to A5."""

    HONEST = "honest"
    """Every candidate's download and probe epoch."""
    SELECTED_ONLY = "selected_only"
    """Only those of the devices that were then chosen: the reading that fits the paper's table."""
    FREE = "free"
    """Nobody's."""


@dataclass(frozen=True, slots=True)
class ClientCost:
    """Time and energy of each participant, in the order of `RoundOutcome.clients`.

    What a device did not do is 0; work that was cut short counts as far as it went. What is not known is NaN:
    on a bench, of a device whose part failed or whose recording cannot tell.

    Attributes:
        download_s: Receiving the model, seconds.
        probe_s: What the choice rests on: the first local epoch, or a forward pass.
        wait_s: Waiting for the decision.
        train_s: The local epochs after the choice.
        upload_s: Sending the update.
        download_j: Energy of receiving the model, joules.
        probe_j: Energy of the probe.
        wait_j: Energy of waiting awake, as the run counts energy; outside the paper's R_E.
        train_j: Energy of the epochs after the choice.
        upload_j: Energy of sending the update.
    """

    download_s: NDArray[np.float64]
    probe_s: NDArray[np.float64]
    wait_s: NDArray[np.float64]
    train_s: NDArray[np.float64]
    upload_s: NDArray[np.float64]
    download_j: NDArray[np.float64]
    probe_j: NDArray[np.float64]
    wait_j: NDArray[np.float64]
    train_j: NDArray[np.float64]
    upload_j: NDArray[np.float64]

    @property
    def unknown(self) -> NDArray[np.bool_]:
        """Of whom not everything is known."""
        return np.asarray(np.isnan([getattr(self, name) for name in COSTS]).any(axis=0))

    def known(self) -> ClientCost:
        """What is known of it; sums and largest values of that are lower bounds."""
        return ClientCost(**{name: np.nan_to_num(getattr(self, name)) for name in COSTS})


COSTS = tuple(field.name for field in fields(ClientCost))
"""Names of what a device is charged; also columns of the tables of participants."""


@dataclass(frozen=True, slots=True)
class Reports:
    """What each participant reported to the server, in the order of `RoundOutcome.clients`; NaN for nothing.

    Attributes:
        epoch_s: Measured duration of one local epoch.
        epoch_j: Measured energy of one local epoch.
        comm_s: Measured duration of download and upload.
        comm_j: Measured energy of download and upload.
        upload_j: Measured energy of the upload alone.
        loss: Mean training loss over the first local epoch.
        loss_rms: Root mean square of the samples' losses over the first local epoch.
        global_loss: Mean loss of the received model before training, where a selector needs it.
        local_accuracy: Accuracy of the new global model, as in `ServerView`, where a selector needs it.
        bias_delta: Change of the output layer's bias, one row per participant, where a selector needs it.
        weights: Uploaded weights as flat rows, where a selector needs them.
    """

    epoch_s: NDArray[np.float64]
    epoch_j: NDArray[np.float64]
    comm_s: NDArray[np.float64]
    comm_j: NDArray[np.float64]
    upload_j: NDArray[np.float64]
    loss: NDArray[np.float64]
    loss_rms: NDArray[np.float64]
    global_loss: NDArray[np.float64] | None = None
    local_accuracy: NDArray[np.float64] | None = None
    bias_delta: NDArray[np.float64] | None = None
    weights: NDArray[np.float32] | None = None

    def restricted(self, needs: Iterable[str]) -> Reports:
        """The same reports with NaN in those that were not asked for; see `ServerView.restricted`."""
        hidden = {field.name for field in fields(self)} - {"weights", *needs}
        blank: dict[str, Any] = {
            name: np.full_like(values, np.nan)
            for name in hidden
            if (values := getattr(self, name)) is not None
        }
        return replace(self, **blank)


@dataclass(frozen=True, slots=True)
class RoundCost:
    """R_T and R_E of the paper under one accounting; NaN if the cost of one that counts is not known."""

    time_s: float
    energy_j: float


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """One federated round, as the server knows it when it is over.

    Attributes:
        round: From 1 on; 0 for what a method does once before the first (profiling).
        start_ns: Virtual time at which it was due.
        duration_ns: Virtual time it took: R_T under ``honest``, and the waiting for devices if nobody came.
        clients: Devices that took part in any way, ascending.
        chosen: Which of them were told to train.
        fates: How it ended for each of them.
        cost: What it cost each of them; hidden from selectors, who know what was reported (`restricted`).
        reports: What they reported to the server.
        costs: R_T and R_E under every accounting.
        accuracy: Of the new global model on the server's validation split; NaN where it was not evaluated.
            Where the task is judged by another metric, that.
        accuracy_gain: Against the model before, as a share (`Metric.gain`), positive if it became better; 0
            for an empty round.
        reward: Of the round under the scenario's accounting.
        global_weights: The new global model as a flat row, where a selector needs weights.
        known_costs: What is known of ``costs``, on a bench: lower bounds where somebody's is not known.
        loaded_s: How long each of the clients computed beside something else; ``None`` if nobody knows.
        device_rewards: The reward if the whole round had taken as long and cost as much as each of the
            clients makes it, 0 for those not chosen (`emulator.round.accounting.shares_of_round`); ``None``
            where it was not worked out.
    """

    round: int
    start_ns: int
    duration_ns: int
    clients: NDArray[np.int64]
    chosen: NDArray[np.bool_]
    fates: tuple[Fate, ...]
    cost: ClientCost
    reports: Reports
    costs: Mapping[Accounting, RoundCost]
    accuracy: float
    accuracy_gain: float
    reward: float
    global_weights: NDArray[np.float32] | None = None
    known_costs: Mapping[Accounting, RoundCost] | None = None
    loaded_s: NDArray[np.float64] | None = None
    device_rewards: NDArray[np.float64] | None = None

    @property
    def failed(self) -> NDArray[np.bool_]:
        """Which of the clients left, were late or diverged; an empty battery shows when they check in."""
        return np.array([fate in FAILURES for fate in self.fates], dtype=bool)

    def restricted(self, needs: Iterable[str]) -> RoundOutcome:
        """As a selector gets to see it: NaN in reports that it did not ask for, and in everybody's costs."""
        hidden = np.broadcast_to(np.nan, len(self.clients))
        nothing = ClientCost(*(hidden for _ in fields(ClientCost)))
        return replace(self, cost=nothing, loaded_s=None, reports=self.reports.restricted(needs))

    @property
    def energy_j(self) -> float:
        """Everything every participant spent, rejected work and waiting included; NaN if not all is known."""
        cost = self.cost
        return float((cost.download_j + cost.probe_j + cost.wait_j + cost.train_j + cost.upload_j).sum())
