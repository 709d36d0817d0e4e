"""What reports tell of devices: what a round would take them, which labels they hold, whom to ask."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.round.selector import Selector
from emulator.round.view import Ids, ServerView
from emulator.selectors.parts.draws import draw_uniform


def epoch_s(view: ServerView) -> NDArray[np.float64]:
    """Duration of one local epoch: as last measured, else as estimated at registration."""
    return np.where(np.isnan(view.epoch_s), view.capability_s, view.epoch_s)


def round_s(view: ServerView) -> NDArray[np.float64]:
    """Duration of a whole round: download, all local epochs, upload."""
    return view.comm_s + view.local_epochs * epoch_s(view)


def round_j(view: ServerView) -> NDArray[np.float64]:
    """Energy of a whole round; NaN where no epoch has been measured."""
    return view.comm_j + view.local_epochs * view.epoch_j


def label_shares(bias_delta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Label shares guessed from updates, one row per device; each row sums to 1.

    The gradient of the output layer's bias is the mean of (softmax - one-hot), so over a local training the
    bias of a class rises where the device holds more of it than the model predicted. The rises, normalised,
    are the estimate. A device that has sent no update yet, or whose update raised no bias, counts as
    balanced. Methods that look for balance therefore try whom they do not know; devices that have no data or
    never deliver have to be left out before (`worth_asking`).

    Args:
        bias_delta: Change of the output bias in each device's last update; NaN rows for none.
    """
    risen = np.where(bias_delta > 0.0, bias_delta, 0.0)  # NaN compares false
    total = risen.sum(axis=1, keepdims=True)
    classes = bias_delta.shape[1]
    balanced = np.full(risen.shape, 1.0 / classes)
    return np.asarray(np.divide(risen, total, out=balanced, where=total > 0.0))


def worth_asking(view: ServerView, devices: Ids, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Devices with data; one that failed f times in a row only with probability 2^-f.

    Methods that look for what they do not know yet would ask a device that never delivers again and again,
    and one without data looks perfectly balanced to those that count labels. Never for good: whoever is late
    today may be at home tomorrow. Nothing is drawn where nobody failed.
    """
    with_data = view.data_size[devices] > 0
    failures = view.failures[devices]
    if not failures.any():
        return np.asarray(with_data)
    return np.asarray(with_data & (rng.random(len(devices)) < 0.5**failures))


class GrownCohort(Selector):
    """Grows a cohort among devices that are worth asking; where they are too few, others come at random."""

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """Grow the cohort to ``k``."""
        worth = worth_asking(view, candidates, rng)
        first = candidates[worth]
        chosen = self.grown(view, first, min(k, len(first)), rng)
        missing = min(k, len(candidates)) - len(chosen)
        if not missing:
            return chosen
        return np.concatenate([chosen, draw_uniform(rng, candidates[~worth], missing)])

    def grown(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """``k`` of the candidates, of which there are as many at least."""
        raise NotImplementedError
