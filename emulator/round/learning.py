"""The learning side of a round: what devices report from their training, and the new global model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.round.rules import Aggregate, Aggregation
from emulator.round.view import Ids
from emulator.training.base import LocalResults, Trainer
from joulefleet.errors import ConfigError

Array = NDArray[np.float64]


class RoundLearning:
    """One round of a trainer; the results are filed by participant.

    Args:
        trainer: Trains.
        number: Of the round.
        weights: The global model.
        devices: Participants, ascending.
        proximal_mu: Of the local objective.
    """

    def __init__(
        self,
        trainer: Trainer,
        number: int,
        weights: NDArray[np.float32],
        devices: Ids,
        *,
        proximal_mu: float,
    ) -> None:
        self._trainer = trainer
        self._weights = weights
        self._devices = devices
        self.loss = np.full(len(devices), np.nan)
        self.loss_rms = np.full(len(devices), np.nan)
        self.global_loss = np.full(len(devices), np.nan)
        trainer.begin(number, weights, proximal_mu=proximal_mu)

    def measure_loss(self, places: Ids, *, one_batch: bool = False) -> None:
        """Loss of the received model on each device's own data, or on one batch of it."""
        devices = self._devices[places]
        measure = self._trainer.batch_loss_of if one_batch else self._trainer.loss_of
        self.global_loss[places] = measure(self._weights, devices)

    def train(self, places: Ids, epochs: Ids, *, first: bool) -> NDArray[np.bool_]:
        """So many further epochs on each; tells whose results are finite.

        Args:
            places: Who trains.
            epochs: How many epochs each.
            first: These include the first local epoch, whose losses are reported.
        """
        if not len(places):
            return np.ones(0, bool)
        results: LocalResults = self._trainer.train(self._devices[places], epochs)
        if first:
            self.loss[places] = np.where(results.finite, results.loss, np.nan)
            self.loss_rms[places] = np.where(results.finite, results.loss_rms, np.nan)
        return results.finite

    def aggregate(self, places: Ids, sizes: Ids, how: Aggregation | Aggregate) -> NDArray[np.float32]:
        """The new global model; the old one if nobody has data."""
        if not isinstance(how, Aggregation):
            return self._combined(places[sizes > 0], sizes[sizes > 0], how)
        counted = sizes if how is Aggregation.BY_SIZE else (sizes > 0).astype(np.int64)
        with_data = counted > 0
        if not with_data.any():
            return self._weights
        places, counted = places[with_data], counted[with_data]
        return self._trainer.aggregate(self._devices[places], counted / counted.sum())

    def _combined(self, places: Ids, sizes: Ids, how: Aggregate) -> NDArray[np.float32]:
        if not len(places):
            return self._weights
        rows = self._trainer.weights(self._devices[places])
        found = np.asarray(how(rows, sizes, self._weights.copy()))
        if found.shape != self._weights.shape or found.dtype.kind != "f" or not np.isfinite(found).all():
            raise ConfigError(
                f"the aggregation {getattr(how, '__name__', how)!r} gave {found.dtype} of shape {found.shape}"
                f"{', not all of it finite' if found.shape == self._weights.shape else ''}",
                hint=f"one finite number per weight is needed: shape {self._weights.shape}",
            )
        return found.astype(np.float32)

    def rows(self, places: Ids) -> NDArray[np.float32]:
        """Uploaded weights, one row per participant; NaN for those who uploaded nothing."""
        rows = np.full((len(self._devices), len(self._weights)), np.nan, np.float32)
        if len(places):
            rows[places] = self._trainer.weights(self._devices[places])
        return rows

    def bias_delta(self, places: Ids) -> Array:
        """Change of the output layer's bias, one row per participant, likewise."""
        before = self._trainer.bias_of(self._weights).astype(np.float64)
        rows = np.full((len(self._devices), len(before)), np.nan)
        if len(places):
            rows[places] = self._trainer.bias_of(self._trainer.weights(self._devices[places])) - before
        return rows

    def local_accuracy(self, places: Ids, weights: NDArray[np.float32]) -> Array:
        """Accuracy of the new model on the devices' own samples (`Trainer.accuracy_of`), likewise."""
        found = np.full(len(self._devices), np.nan)
        if len(places):
            found[places] = self._trainer.accuracy_of(weights, self._devices[places])
        return found
