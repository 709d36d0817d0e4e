"""Kinds of people: a mixture of Markov processes with rates by hour, fitted by expectation-maximisation.

The number of classes and the strength of the prior are those that best predict people left out of the fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulefleet.seeds import generator

Array = NDArray[np.float64]

CLASS_CHOICES = (1, 2, 3, 4, 6, 8, 12)
PRIOR_CHOICES = (1.0, 4.0, 16.0)
"""Departures per class, state and hour that the prior is worth."""

FOLDS = 5
RESTARTS = 3
MAX_STEPS = 200
TOLERANCE = 1e-6
FEWEST_PEOPLE = 3
"""In a class: a smaller one would be a portrait of somebody."""


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Classes of people.

    Attributes:
        weight: Share of each class.
        rate: Departures per hour: class x state x hour.
        prior: Strength that was used.
        log_likelihood: Of the people it was fitted on.
    """

    weight: Array
    rate: Array
    prior: float
    log_likelihood: float

    def log_joint(self, spent_h: Array, left: Array) -> Array:
        """Log-likelihood of each person in each class, with the weight of the class."""
        people = len(spent_h)
        log_rate = np.log(self.rate).reshape(len(self.weight), -1)
        rate = self.rate.reshape(len(self.weight), -1)
        fit = left.reshape(people, -1) @ log_rate.T - spent_h.reshape(people, -1) @ rate.T
        return np.asarray(fit + np.log(np.maximum(self.weight, 1e-300)))

    def belonging(self, spent_h: Array, left: Array) -> Array:
        """Probability of each class for each person."""
        joint = self.log_joint(spent_h, left)
        odds = np.exp(joint - joint.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def best_mixture(spent_h: Array, left: Array) -> Mixture:
    """The mixture whose size and prior predict best, fitted on everybody.

    Args:
        spent_h: Hours spent: person x state x hour.
        left: Departures, likewise.
    """
    people = len(spent_h)
    sizes = [n for n in CLASS_CHOICES if n * FEWEST_PEOPLE <= people]
    if people < 2 * FOLDS:
        return fit_mixture(spent_h, left, 1, PRIOR_CHOICES[0])
    scores = {(n, prior): _left_out_score(spent_h, left, n, prior) for n in sizes for prior in PRIOR_CHOICES}
    size, prior = max(scores, key=lambda choice: scores[choice])
    return _without_small(spent_h, left, fit_mixture(spent_h, left, size, prior))


def _without_small(spent_h: Array, left: Array, mixture: Mixture) -> Mixture:
    """The smallest class goes, until none has fewer people than it may have."""
    while len(mixture.weight) > 1 and mixture.weight.min() * len(spent_h) < FEWEST_PEOPLE:
        keep = np.delete(np.arange(len(mixture.weight)), mixture.weight.argmin())
        fewer = Mixture(mixture.weight[keep], mixture.rate[keep], mixture.prior, 0.0)
        mixture = _climb(spent_h, left, fewer.belonging(spent_h, left), mixture.prior)
    return mixture


def _left_out_score(spent_h: Array, left: Array, size: int, prior: float) -> float:
    fold = generator(0, "usage model folds").permutation(len(spent_h)) % FOLDS
    total = 0.0
    for k in range(FOLDS):
        inside, outside = fold != k, fold == k
        mixture = fit_mixture(spent_h[inside], left[inside], size, prior, restarts=1)
        total += _log_sum(mixture.log_joint(spent_h[outside], left[outside])).sum()
    return total


def fit_mixture(spent_h: Array, left: Array, size: int, prior: float, restarts: int = RESTARTS) -> Mixture:
    """The likeliest mixture of some size, from several beginnings."""
    found = [_climb(spent_h, left, begin, prior) for begin in _beginnings(spent_h, size, restarts)]
    return max(found, key=lambda mixture: mixture.log_likelihood)


def _beginnings(spent_h: Array, size: int, restarts: int) -> list[Array]:
    """First guesses: by share of time in the last state, then at random."""
    people = len(spent_h)
    share = spent_h[:, -1].sum(axis=1) / np.maximum(spent_h.sum(axis=(1, 2)), 1e-9)
    ranked = np.argsort(np.argsort(share, kind="stable"), kind="stable") * size // people
    guesses = [np.eye(size)[ranked]]
    rng = generator(0, "usage model beginnings", size)
    guesses += [rng.dirichlet(np.ones(size), people) for _ in range(restarts - 1)]
    return guesses if size > 1 else guesses[:1]


def _climb(spent_h: Array, left: Array, belonging: Array, prior: float) -> Mixture:
    mixture = _fitted(spent_h, left, belonging, prior)
    for _ in range(MAX_STEPS):
        better = _fitted(spent_h, left, mixture.belonging(spent_h, left), prior)
        gain = better.log_likelihood - mixture.log_likelihood
        mixture = better
        if abs(gain) < TOLERANCE * abs(mixture.log_likelihood):
            break
    return mixture


def _fitted(spent_h: Array, left: Array, belonging: Array, prior: float) -> Mixture:
    """Weights and rates given who belongs where; rates shrink to the class's level of the common curve."""
    common = curve(left.sum(axis=0), spent_h.sum(axis=0))
    class_left = np.einsum("uc,ush->csh", belonging, left)
    class_spent = np.einsum("uc,ush->csh", belonging, spent_h)
    expected = (class_spent * common).sum(axis=2)
    level = (class_left.sum(axis=2) + 1.0) / (expected + 1.0)
    target = common * level[:, :, None]
    rate = (class_left + prior) / (class_spent + prior / target)
    weight = belonging.mean(axis=0)
    mixture = Mixture(weight, rate, prior, 0.0)
    likelihood = float(_log_sum(mixture.log_joint(spent_h, left)).sum())
    return Mixture(weight, rate, prior, likelihood)


def curve(left: Array, spent_h: Array) -> Array:
    """Departures per hour by state and hour; an hour with little data leans on the state's mean."""
    mean = (left.sum(axis=1, keepdims=True) + 0.5) / (spent_h.sum(axis=1, keepdims=True) + 0.5)
    return np.asarray((left + 1.0) / (spent_h + 1.0 / mean))


def _log_sum(joint: Array) -> Array:
    top = joint.max(axis=1)
    return np.asarray(top + np.log(np.exp(joint - top[:, None]).sum(axis=1)))
