"""From recorded traces to a usage model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedjoule.errors import DataQualityError
from traces.synth.classes import Mixture, best_mixture, curve
from traces.synth.counts import Counts, count
from traces.synth.model import BLOCKS, Evidence, Process, UserClass
from traces.synth.spells import Spells
from traces.synth.stay import clock_amounts, part_of_day, stay_quantiles

Array = NDArray[np.float64]
DAY_TYPE_PRIOR = 8.0
"""Departures at one hour that the prior "weekends are like weekdays" is worth."""
GOES_TO_PRIOR = 4.0
START_PRIOR = 2.0


def fit_process(spells: Spells, channels: Sequence[str], evidence: Evidence) -> Process:
    """Fit a process on the spells of its channels.

    Raises:
        DataQualityError: Nothing ever changes in them.
    """
    if not np.any(spells.next_state >= 0):
        raise DataQualityError(
            f"{', '.join(channels)}: not a single change on record", hint="fit on longer recordings"
        )
    counts = count(spells)
    spent_h, left = counts.spent_h.sum(axis=2), counts.left.sum(axis=2)
    mixture = best_mixture(spent_h, left)
    belonging = mixture.belonging(spent_h, left)
    day_factor = _day_factor(counts)
    class_rate = mixture.rate[:, :, None, :] * day_factor
    # Everybody's own expected rates: those of the classes, in proportion.
    own_rate = np.einsum("uc,cswh->uswh", belonging, class_rate)
    amounts = clock_amounts(spells, own_rate)
    stay = [_stay(spells, amounts, state) for state in range(2**spells.channels)]
    return Process(
        channels=tuple(channels),  # type: ignore[arg-type]
        classes=_classes(mixture, belonging, class_rate, counts),
        stay=tuple(stay),
        pace_sigma=_rounded(_pace_sigma(counts, own_rate)),
        state_sigma=(0.0,) * 2**spells.channels,
        evidence=evidence,
    )


def _stay(spells: Spells, amounts: Array, state: int) -> tuple[tuple[float, ...], ...]:
    chosen = spells.begun & (spells.state == state)
    return stay_quantiles(
        amounts[chosen], spells.next_state[chosen] >= 0, part_of_day(spells.start_h[chosen])
    )


def _day_factor(counts: Counts) -> Array:
    """By state, kind of day and hour: the rate on such days over the rate on all days."""
    left, spent = counts.left.sum(axis=0), counts.spent_h.sum(axis=0)
    all_days = curve(left.sum(axis=1), spent.sum(axis=1))[:, None, :]
    return np.asarray((left + DAY_TYPE_PRIOR) / (all_days * spent + DAY_TYPE_PRIOR))


def _pace_sigma(counts: Counts, own_rate: Array) -> float:
    """Spread of people's pace beyond what chance gives: Var(n) = m + m² s² for counts of mean m."""
    expected = (own_rate * counts.spent_h).sum(axis=(1, 2, 3))
    found = counts.left.sum(axis=(1, 2, 3))
    beyond = float(np.sum((found - expected) ** 2 - expected) / np.sum(expected**2))
    return float(np.sqrt(np.log1p(max(beyond, 0.0))))


def _classes(
    mixture: Mixture, belonging: Array, class_rate: Array, counts: Counts
) -> tuple[UserClass, ...]:
    went_to = np.einsum("uc,usbt->csbt", belonging, counts.went_to)
    midnight = belonging.T @ counts.at_midnight
    spent = np.einsum("uc,uswh->cs", belonging, counts.spent_h)
    odds = _odds(went_to)
    weight = mixture.weight / mixture.weight.sum()
    found = []
    for c in range(len(weight)):
        share = spent[c] / spent[c].sum()
        start = (midnight[c] + START_PRIOR * share) / (midnight[c].sum() + START_PRIOR)
        found.append(
            UserClass(
                weight=weight[c],
                start=tuple(start.tolist()),
                leave_per_h=tuple(
                    tuple(tuple(_rounded(v) for v in row) for row in rates)
                    for rates in class_rate[c].tolist()
                ),  # type: ignore[arg-type]
                goes_to=tuple(tuple(tuple(row) for row in part) for part in odds[c].tolist()),
            )
        )
    return tuple(found)


def _odds(went_to: Array) -> Array:
    """Class x state x part of the day x next state; little data leans on everybody's odds."""
    states = went_to.shape[1]
    other = np.broadcast_to(1.0 - np.eye(states)[:, None, :], (states, BLOCKS, states))
    everybody = went_to.sum(axis=(0, 2))[:, None, :] + other
    everybody = everybody / everybody.sum(axis=2, keepdims=True)
    leaning = went_to + GOES_TO_PRIOR * everybody
    return np.asarray(leaning / leaning.sum(axis=3, keepdims=True))


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
