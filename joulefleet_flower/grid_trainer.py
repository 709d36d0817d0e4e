"""`GridTrainer`: what the engine knows as local training, done by Flower's clients."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict
from numpy.typing import NDArray

from emulator.training import LocalResults, Score
from joulefleet_flower import wire
from joulefleet_flower.clients import Answers, Clients, number
from joulefleet_flower.rows import Rows

Ids = NDArray[np.int64]
Row = NDArray[np.float32]
Aggregate = Callable[[list[Message]], ArrayRecord]
ScoreModel = Callable[[ArrayRecord, str], tuple[float, float]]
"""Mean loss and accuracy of a model on the server's ``validation`` or ``test`` split."""


class GridTrainer:
    """See `emulator.training.base.Trainer`.

    Flower itself sends the messages for the training proper and collects the replies (`Strategy.start`), so
    the chosen have already trained when the engine asks for it: `deliver` hands in what they sent. Whatever
    comes before the choice is asked for directly.

    Args:
        clients: Who trains.
        initial: The model before round 1.
        classes: Number of classes.
        aggregate: Flower's own aggregation of some replies.
        score: Scores a model on the server.
        profile_uploads: Whether updates are to be sent in round 0.
    """

    implementation = "flower"

    def __init__(
        self,
        clients: Clients,
        initial: ArrayRecord,
        classes: int,
        *,
        aggregate: Aggregate,
        score: ScoreModel,
        profile_uploads: bool,
    ) -> None:
        self._clients, self._rows, self._initial = clients, Rows(initial), initial
        self._classes, self._aggregate, self._score = classes, aggregate, score
        self._profile_uploads = profile_uploads
        self._replies: dict[int, Message] | None = None
        self._updates: dict[int, RecordDict] = {}

    def orders(self, round_number: int, weights: Row, work: Mapping[int, range], mu: float) -> list[Message]:
        """What the chosen are told: which local epochs to train. The model goes only to who lacks it."""
        model = self.record(weights)
        return [
            self._clients.message(
                wire.TRAIN,
                client,
                _settings(round_number, epochs, mu, upload=True),
                None if epochs.start else model,
            )
            for client, epochs in work.items()
        ]

    def deliver(self, replies: Iterable[Message]) -> None:
        """Take what Flower collected for the `orders` of this round."""
        kept = list(replies)
        self._updates = self._clients.answers(kept)
        self._replies = {self._clients.client_of(reply): reply for reply in kept}

    def record(self, weights: Row) -> ArrayRecord:
        """A row of weights as Flower has it."""
        return self._rows.record(weights)

    def initial(self) -> Row:
        """See `Trainer`."""
        return self._rows.row(self._initial)

    def begin(self, round_number: int, weights: Row, *, proximal_mu: float = 0.0) -> None:
        """See `Trainer`."""
        self._round, self._weights, self._mu = round_number, weights, proximal_mu

    def train(self, clients: Ids, epochs: Ids) -> LocalResults:
        """See `Trainer`; who failed or did not answer counts as diverged."""
        if self._replies is None:  # nobody has been chosen yet: this is the epoch before the choice
            upload = self._profile_uploads and self._round == 0
            settings = _settings(self._round, range(1), self._mu, upload=upload)
            self._updates = self._ask(wire.PROBE, clients, self._weights, settings)
        found = [self._result(int(c), int(n)) for c, n in zip(clients, epochs, strict=True)]
        loss, rms, finite = (np.array(column) for column in zip(*found, strict=True))
        return LocalResults(loss, rms, loss, finite.astype(bool))

    def aggregate(self, clients: Ids, shares: NDArray[np.float64]) -> Row:
        """See `Trainer`; Flower weights by the samples that clients report, which is what ``shares`` are."""
        replies = self._replies or {}
        return self._rows.row(self._aggregate([replies[client] for client in sorted(clients.tolist())]))

    def weights(self, clients: Ids) -> Row:
        """See `Trainer`."""
        return np.stack([self._rows.row(self._updates[c][wire.ARRAYS]) for c in clients.tolist()])

    def end(self) -> None:
        """See `Trainer`."""
        self._replies, self._updates = None, {}

    def loss_of(self, weights: Row, clients: Ids) -> NDArray[np.float64]:
        """See `Trainer`."""
        return self._numbers(wire.LOSS, clients, weights, wire.MEAN_LOSS, {wire.ONE_BATCH: False})

    def batch_loss_of(self, weights: Row, clients: Ids) -> NDArray[np.float64]:
        """See `Trainer`."""
        return self._numbers(wire.LOSS, clients, weights, wire.MEAN_LOSS, {wire.ONE_BATCH: True})

    def accuracy_of(self, weights: Row, clients: Ids) -> NDArray[np.float64]:
        """See `Trainer`."""
        return self._numbers(wire.EVALUATE, clients, weights, wire.ACCURACY, {})

    def evaluate(self, weights: Row, split: str) -> Score:
        """See `Trainer`."""
        return Score(*self._score(self.record(weights), split))

    def bias_of(self, weights: Row) -> Row:
        """See `Trainer`."""
        return weights[..., self._rows.output_bias(self._classes)]

    def close(self) -> None:
        """See `Trainer`; the nodes are Flower's."""

    def _result(self, client: int, epochs: int) -> tuple[float, float, bool]:
        """Mean and root mean square of the losses, and whether all of it is finite."""
        answer = self._updates.get(client)
        if answer is None:
            return float("nan"), float("nan"), False
        metrics = answer[wire.METRICS]
        loss, rms = (number(metrics, client, name) for name in (wire.MEAN_LOSS, wire.RMS_LOSS))
        # Without samples or epochs there is no loss, and nothing wrong with that.
        worked = epochs > 0 and number(metrics, client, wire.SAMPLES) > 0
        finite = not worked or bool(np.isfinite([loss, rms]).all())
        if wire.ARRAYS in answer:
            finite &= bool(np.isfinite(self._rows.row(answer[wire.ARRAYS])).all())
        return loss, rms, finite

    def _numbers(
        self, kind: str, clients: Ids, weights: Row, name: str, settings: Mapping[str, Any]
    ) -> NDArray[np.float64]:
        answers = self._ask(kind, clients, weights, {wire.ROUND: self._round, **settings})
        missing = float("nan")
        return np.array(
            [number(answers[c][wire.METRICS], c, name) if c in answers else missing for c in clients.tolist()]
        )

    def _ask(self, kind: str, clients: Ids, weights: Row, settings: Mapping[str, Any]) -> Answers:
        return self._clients.ask(kind, clients.tolist(), settings, self.record(weights))


def _settings(round_number: int, epochs: range, mu: float, *, upload: bool) -> dict[str, Any]:
    return {
        wire.ROUND: round_number,
        wire.FIRST_EPOCH: epochs.start,
        wire.EPOCHS: len(epochs),
        wire.PROXIMAL_MU: float(mu),
        wire.UPLOAD: upload,
    }
