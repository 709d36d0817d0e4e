"""Behaviour cloning: algorithm 1 of the FedRank paper, offline, from experts' rounds.

The paper's loss L(s, pi*) is left undefined (item A11): each device's cross-entropy with the expert's choice,
in which the chosen weigh as much as all the others (``bce``), or RankNet over pairs (``ranknet``).
Truncated back-propagation through time is dropped: a round's state has no recurrence (item A2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from emulator.selectors.neural.adam import Adam
from emulator.selectors.neural.mlp import Mlp, one_blas_thread
from emulator.selectors.neural.pairs import imitation_loss
from emulator.selectors.neural.vdn import advantages, at_outputs
from emulator.selectors.parts.draws import top_k

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from emulator.selectors.neural.policy import Demonstrations


@dataclass(frozen=True, slots=True)
class CloningOptions:
    """How long and how fast to imitate.

    Attributes:
        hidden: Units of the hidden layers.
        loss: ``bce`` or ``ranknet``.
        rate: Adam's learning rate.
        batch: Rounds per step.
        epochs: At most so many passes over the demonstrations.
        patience: Passes without a better loss on rounds it does not learn from before it stops.
    """

    hidden: tuple[int, ...] = (64, 64)
    loss: Literal["bce", "ranknet"] = "bce"
    rate: float = 1e-3
    batch: int = 16
    epochs: int = 200
    patience: int = 20


@one_blas_thread
def clone(
    train: Demonstrations,
    stop: Demonstrations,
    options: CloningOptions,
    rng: np.random.Generator,
    on_epoch: Callable[[int, float], None] = lambda *_: None,
) -> Mlp:
    """A network that ranks as the experts chose, as it was when its loss on ``stop`` was lowest."""
    features = train.states.shape[2]
    network = Mlp.made((features, *options.hidden, 2), rng)
    adam = Adam(network.parameters(), options.rate)
    best, best_loss, since = network.copy(), np.inf, 0
    for number in range(1, options.epochs + 1):
        order = rng.permutation(len(train))
        for start in range(0, len(order), options.batch):
            _step(network, adam, train, order[start : start + options.batch], options)
        loss = mean_loss(network, stop, options)
        on_epoch(number, loss)
        since += 1
        if loss < best_loss:
            best, best_loss, since = network.copy(), loss, 0
        if since >= options.patience:
            break
    return best


def _step(
    network: Mlp, adam: Adam, demos: Demonstrations, picks: NDArray[np.int64], options: CloningOptions
) -> None:
    devices, features = demos.states.shape[1:]
    activations = network.activations(demos.states[picks].reshape(-1, features))
    scores = advantages(activations[-1]).reshape(len(picks), devices)
    slopes = [
        imitation_loss(score, choice, pairwise=options.loss == "ranknet")[1]
        for score, choice in zip(scores, demos.choices[picks], strict=True)
    ]
    slope = np.concatenate(slopes) / np.float32(len(picks))
    adam.step(network.parameters(), network.gradients(activations, at_outputs(slope)))


def mean_loss(network: Mlp, demos: Demonstrations, options: CloningOptions) -> float:
    """The imitation loss over demonstrations."""
    losses = [
        imitation_loss(advantages(network(state)), choice, pairwise=options.loss == "ranknet")[0]
        for state, choice in zip(demos.states, demos.choices, strict=True)
    ]
    return float(np.mean(losses))


def recall(score: Callable[[NDArray[np.float32]], NDArray[np.floating]], demos: Demonstrations) -> float:
    """Share of the experts' certain choices that are among the K best-scored of the same candidates.

    NaN if no choice was certain.

    Args:
        score: One number per row of a state.
        demos: Rounds that the scorer has not learnt from.
    """
    hits = total = 0
    for state, choice, certain in zip(demos.states, demos.choices, _certain(demos), strict=True):
        best = top_k(score(state), int(choice.sum()))
        hits += int(certain[best].sum())
        total += int(certain.sum())
    return hits / total if total else float("nan")


def chance(demos: Demonstrations) -> float:
    """The recall of random scores; NaN if no choice was certain."""
    share = demos.choices.mean(axis=1)
    counted = _certain(demos).sum(axis=1)
    total = int(counted.sum())
    return float((share * counted).sum()) / total if total else float("nan")


def _certain(demos: Demonstrations) -> NDArray[np.bool_]:
    return demos.choices if demos.certain is None else demos.certain


def boosted_trees_recall(train: Demonstrations, held_out: Demonstrations, seed: int) -> float:
    """What gradient-boosted trees reach on the same features: how much there is to imitate at all."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    features = train.states.shape[2]
    chosen = train.choices.ravel()
    # A tenth is set aside to stop by, in which both answers have to occur.
    divisible = len(chosen) >= 20 and 2 <= chosen.sum() <= len(chosen) - 2
    model = HistGradientBoostingClassifier(random_state=seed, early_stopping=bool(divisible))
    # Its threads spin while they wait for each other: on a busy machine more of them take far longer.
    with threadpool_limits(1):
        model.fit(train.states.reshape(-1, features), chosen)
        return recall(lambda state: model.predict_proba(state)[:, 1], held_out)
