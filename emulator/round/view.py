"""`ServerView`: what devices have reported to the server so far, and all that a selector may see."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable

Ids = NDArray[np.int64]
"""Numbers of devices."""

ALWAYS_SHOWN = frozenset({"eligible", "data_size"})
"""Known of every device from its registration and check-in; no selector has to ask for them."""

PRIVILEGED_FIELDS = frozenset(
    {"label_histogram", "leaves_s", "true_epoch_s", "true_epoch_j", "true_comm_s", "true_comm_j"}
)
"""What no server could know; only selectors that say ``privileged`` may ask for these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """One array entry per registered device; NaN where nothing has been reported yet.

    A selector names the fields it reads in its ``needs``; every other one of them holds NaN for it, and
    reading it warns. The arrays are read-only and belong to the engine, which updates them in place between
    calls: a selector that wants to remember a value copies it.

    Attributes:
        round: Number of the round that is about to start, from 1 on.
        rounds: How many are planned. Who reads it plans by it: what it has played is no part of a longer run.
        now_ns: Virtual time.
        k: Devices wanted per round.
        local_epochs: l_ep, the probe epoch included.
        time_budget_s: T of the paper's reward, per round.
        energy_budget_j: E of the paper's reward, per round.
        eligible: Devices that have checked in for this round.
        data_size: Training samples, known from registration.
        capability_s: Duration of one local epoch as estimated at registration from the device's class.
        epoch_s: Last measured duration of one local epoch, seconds.
        epoch_j: Last measured energy of one local epoch, joules.
        comm_s: Last measured duration of download and upload; at first that of a registration speed test.
        comm_j: Last measured energy of download and upload, likewise.
        upload_j: Energy of the last upload alone, joules.
        loss: Last reported mean training loss over a first local epoch.
        loss_rms: Last reported root mean square of the samples' losses over a first local epoch.
        global_loss: Last reported mean loss of the global model a device received, before it trained.
        local_accuracy: Last reported accuracy of a new global model on the device's own held-out samples;
            on those it trains on where the scenario holds none out.
        battery: State of charge at the last check-in, 0 to 1.
        check_ins: Share of the rounds so far in which the device was eligible.
        last_round: Last round in which it was chosen and finished; 0 for never.
        times_chosen: How often it was chosen.
        failures: How often in a row it left, missed the deadline or diverged in what it was asked to do.
        bias_delta: Change of the output layer's bias in its last update, one column per class.
        label_histogram: True share of each class on the device, one column per class.
        leaves_s: In how many seconds it may no longer train, from when this round begins; infinite for never.
        true_epoch_s: What one local epoch would take now.
        true_epoch_j: What one local epoch would cost now.
        true_comm_s: What download and upload would take now.
        true_comm_j: What download and upload would cost now.
        asked: ``rounds`` once that was read; the engine keeps it from view to view.
    """

    round: int
    rounds: int
    now_ns: int
    k: int
    local_epochs: int
    time_budget_s: float
    energy_budget_j: float
    eligible: NDArray[np.bool_]
    data_size: NDArray[np.int64]
    capability_s: NDArray[np.float64]
    epoch_s: NDArray[np.float64]
    epoch_j: NDArray[np.float64]
    comm_s: NDArray[np.float64]
    comm_j: NDArray[np.float64]
    upload_j: NDArray[np.float64]
    loss: NDArray[np.float64]
    loss_rms: NDArray[np.float64]
    global_loss: NDArray[np.float64]
    local_accuracy: NDArray[np.float64]
    battery: NDArray[np.float64]
    check_ins: NDArray[np.float64]
    last_round: NDArray[np.float64]
    times_chosen: NDArray[np.float64]
    failures: NDArray[np.float64]
    bias_delta: NDArray[np.float64]
    label_histogram: NDArray[np.float64]
    leaves_s: NDArray[np.float64]
    true_epoch_s: NDArray[np.float64]
    true_epoch_j: NDArray[np.float64]
    true_comm_s: NDArray[np.float64]
    true_comm_j: NDArray[np.float64]
    asked: set[str] = field(default_factory=set, repr=False)

    def __len__(self) -> int:
        return len(self.data_size)

    @property
    def eligible_ids(self) -> NDArray[np.int64]:
        """Devices that can be chosen now, ascending."""
        return np.flatnonzero(self.eligible)

    def restricted(self, needs: Iterable[str]) -> Self:
        """The same view with NaN in every field that was not asked for; costs nothing."""
        hidden = VIEW_FIELDS - ALWAYS_SHOWN - set(needs)
        return self.changed(**{n: np.broadcast_to(np.nan, self._plain(n).shape) for n in hidden})

    def changed(self, **values: Any) -> Self:
        """A copy with other values in some fields."""
        return type(self)(**{one.name: self._plain(one.name) for one in fields(self)} | values)

    def _plain(self, name: str) -> Any:
        return object.__getattribute__(self, name)

    if not TYPE_CHECKING:  # or every name would pass for an attribute

        def __getattribute__(self, name: str) -> Any:
            value = object.__getattribute__(self, name)
            if name == "rounds":
                object.__getattribute__(self, "asked").add(name)
            # One NaN for all is hidden; one size for all is not.
            if name in VIEW_FIELDS and name not in ALWAYS_SHOWN and not any(value.strides):
                warnings.warn(f"{name!r} is not in the selector's `needs`: it reads NaN", stacklevel=2)
            return value


SCALARS = frozenset(
    {"round", "rounds", "now_ns", "k", "local_epochs", "time_budget_s", "energy_budget_j", "asked"}
)
VIEW_FIELDS = frozenset(one.name for one in fields(ServerView)) - SCALARS
"""Names of everything that is reported per device: what ``needs`` is made of."""
