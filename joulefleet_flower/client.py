"""The client's side: a ClientApp that can be probed, told to go on, and asked about its data."""

from collections.abc import Callable, Sequence

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from joulefleet_flower import wire

WEIGHTS, OPTIMISER = "joulefleet-weights", "joulefleet-optimiser"
"""Where a probe leaves off, in the client's own state; it never leaves the client."""


class LocalClient:
    """What a client does. A subclass has to have four members: `samples`, `load`, `weights`, `train`.

    The others matter to some selectors only; one that asks for what a client lacks is refused at the start.
    ``examples/flower/digits_client.py`` has all of them, in plain torch.

    Attributes:
        samples: How many it trains on.
        client: Its number from 0 on, the same in every run; None to go by Flower's node ids.
        label_counts: How many it has of each class. No real client tells: for oracles in a simulation only.
    """

    samples: int
    client: int | None = None
    label_counts: Sequence[int] = ()

    def load(self, weights: ArrayRecord, optimiser: ArrayRecord | None = None) -> None:
        """Take these weights, and a fresh optimiser or, where there is one, that of `optimiser_state`."""
        raise NotImplementedError

    def weights(self) -> ArrayRecord:
        """The present weights."""
        raise NotImplementedError

    def train(self, round_number: int, epochs: range, proximal_mu: float) -> NDArray[np.float32]:
        """Train these local epochs (counted from 0); every sample's loss in the first of them."""
        raise NotImplementedError

    def optimiser_state(self) -> ArrayRecord:
        """What later epochs depend on beside the weights, such as momentum; by default nothing."""
        return ArrayRecord()

    def losses(self, round_number: int, *, one_batch: bool) -> NDArray[np.float32]:
        """Losses of the loaded weights on its samples, or on the first batch that it would train on."""
        raise NotImplementedError("`losses`")

    def accuracy(self) -> float:
        """Accuracy of the loaded weights on its held-out samples, or on all where none are held out."""
        raise NotImplementedError("`accuracy`")


OpenClient = Callable[[Context, ConfigRecord], LocalClient]


def selectable(open_client: OpenClient) -> ClientApp:
    """A ClientApp that `joulefleet_flower.strategy.SelectingFedAvg` can select.

    Args:
        open_client: Makes the client of a node; called for every message, so it should remember its data.
    """
    app = ClientApp()

    @app.query("register")
    def register(message: Message, context: Context) -> Message:
        client = open_client(context, message.content[wire.CONFIG])
        told = {
            wire.SAMPLES: client.samples,
            wire.LABEL_COUNTS: [int(n) for n in client.label_counts],
            wire.HAS_LOSSES: int(type(client).losses is not LocalClient.losses),
            wire.HAS_ACCURACY: int(type(client).accuracy is not LocalClient.accuracy),
        }
        return _answer(message, told if client.client is None else {**told, wire.CLIENT: client.client})

    @app.train("probe")
    def probe(message: Message, context: Context) -> Message:
        client = open_client(context, message.content[wire.CONFIG])
        metrics = _train(client, message, context)
        context.state[WEIGHTS], context.state[OPTIMISER] = client.weights(), client.optimiser_state()
        upload = message.content[wire.CONFIG][wire.UPLOAD]
        return _answer(message, metrics, client.weights() if upload else None)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client = open_client(context, message.content[wire.CONFIG])
        return _answer(message, _train(client, message, context), client.weights())

    @app.evaluate("loss")
    def loss(message: Message, context: Context) -> Message:
        config = message.content[wire.CONFIG]
        client = open_client(context, config)
        client.load(message.content[wire.ARRAYS])
        found = client.losses(config[wire.ROUND], one_batch=config[wire.ONE_BATCH])
        return _answer(message, {wire.MEAN_LOSS: _mean(found)})

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        client = open_client(context, message.content[wire.CONFIG])
        client.load(message.content[wire.ARRAYS])
        return _answer(message, {wire.ACCURACY: client.accuracy()})

    return app


def _train(client: LocalClient, message: Message, context: Context) -> dict[str, float]:
    """Train as the message says, from its model or from where the probe of this round left off."""
    config = message.content[wire.CONFIG]
    first = config[wire.FIRST_EPOCH]
    if first:
        client.load(context.state[WEIGHTS], context.state[OPTIMISER] or None)  # empty: there is none
    else:
        client.load(message.content[wire.ARRAYS])
    epochs = range(first, first + config[wire.EPOCHS])
    losses = client.train(config[wire.ROUND], epochs, config[wire.PROXIMAL_MU])
    exact = np.asarray(losses, np.float64)
    return {
        wire.SAMPLES: client.samples,
        wire.MEAN_LOSS: _mean(exact),
        wire.RMS_LOSS: float(np.sqrt(_mean(exact**2))),
    }


def _mean(values: NDArray[np.floating]) -> float:
    return float(values.mean(dtype=np.float64)) if len(values) else float("nan")


def _answer(message: Message, metrics: dict[str, object], arrays: ArrayRecord | None = None) -> Message:
    content = RecordDict({wire.METRICS: MetricRecord(metrics)})
    if arrays is not None:
        content[wire.ARRAYS] = arrays
    return Message(content=content, reply_to=message)
