"""From the periods of recorded people to a process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from joulefleet.errors import DataQualityError
from traces.synth.fit.classes import best_mixture, curve
from traces.synth.fit.dwell import (
    DwellAmounts,
    Rows,
    clock_amounts,
    dwell_quantiles,
    grid_counts,
    step_factors,
    summed,
)
from traces.synth.fit.periods import Counts, Periods, count, of_first_channel, swapped
from traces.synth.model import Channel, Grid, ModelSource, Process, UserClass, part_of_day

Array = NDArray[np.float64]
DAY_TYPE_PRIOR = 8.0
"""Departures at one hour that the prior "weekends are like weekdays" is worth."""
MIDNIGHT_PRIOR = 2.0
"""Midnights that the overall share of a class is worth."""


def fit_process(
    periods: Periods,
    channel: Channel,
    evidence: ModelSource,
    *,
    given: Channel | None = None,
    grid_h: float | None = None,
) -> Process:
    """Fit a process.

    Args:
        periods: Of the channel and, if so, of the one it is given.
        channel: What it is about.
        evidence: Where they come from.
        given: Which other channel the periods have.
        grid_h: How far apart the readings were, if they came at fixed times.

    Raises:
        DataQualityError: Nothing ever changes.
    """
    own, part = of_first_channel(periods)
    if not np.any(own.next_state >= 0):
        raise DataQualityError(f"{channel}: not a single change on record", hint="fit on longer recordings")
    counts = count(periods, dispersion(own)) if grid_h is None else grid_counts(own, grid_h)
    spent_h, left = counts.spent_h.sum(axis=2), counts.left.sum(axis=2)
    mixture = best_mixture(spent_h, left)
    belonging = mixture.belonging(spent_h, left)
    rate = mixture.rate[:, :, None, :] * _day_factor(counts)
    # Everybody's own rates: those of the classes, in proportion.
    own_rate = np.einsum("uc,cswh->uswh", belonging, rate)
    weights = mixture.weight / mixture.weight.sum()
    dwells: list[tuple[Rows, Rows] | None] = [None] * len(weights)
    if grid_h is None:
        amount = summed(part, clock_amounts(periods, own_rate), len(own))
        dwells = _class_dwells(own, amount, belonging)
    return Process(
        channel=channel,
        given=given,
        classes=tuple(
            _class(weight, counts, belonging[:, c], rate[c], dwells[c])
            for c, weight in enumerate(weights.tolist())
        ),
        pace_sigma=_rounded(_pace_sigma(counts, own_rate)),
        grid=None if grid_h is None else Grid(step_h=grid_h, factor=step_factors(own, own_rate, grid_h)),
        evidence=evidence,
    )


def fit_processes(
    periods: Periods, channels: Sequence[Channel], evidence: ModelSource, grid_h: float | None = None
) -> list[Process]:
    """The process of the first channel and, if there is a second, that of the second given the first."""
    alone, _ = of_first_channel(periods)
    found = [fit_process(alone, channels[0], evidence, grid_h=grid_h)]
    if len(channels) == 2:
        found.append(fit_process(swapped(periods), channels[1], evidence, given=channels[0], grid_h=grid_h))
    return found


def dispersion(own: Periods) -> Array:
    """Per state, the squared coefficient of variation of a person's periods, at least 1.

    The number of departures in a given time varies that much more than by chance alone when periods are that
    irregular (a renewal process in the long run), so that many departures tell as little as few of a regular
    state: screen-on times vary so much that a single long session would decide the rate of its hour.
    """
    found = np.ones(2)
    for state in range(2):
        chosen = own.whole & (own.state == state)
        who, length = own.unit[chosen], own.length_h[chosen]
        times = np.bincount(who, minlength=own.units)
        mean = np.bincount(who, weights=length, minlength=own.units) / np.maximum(times, 1)
        freedom = np.sum(np.maximum(times - 1, 0))
        if freedom:
            found[state] = max(1.0, float(np.sum((length / mean[who] - 1.0) ** 2) / freedom))
    return found


def _class_dwells(own: Periods, amount: Array, belonging: Array) -> list[tuple[Rows, Rows] | None]:
    """Distributions of the amounts in each class, leaning on those of everybody."""
    amounts = DwellAmounts(amount, own.next_state >= 0, part_of_day(own.start_h))
    all_ = _dwells(own, amounts, own.begun)
    kind = belonging.argmax(axis=1)[own.unit]
    return [_dwells(own, amounts, own.begun & (kind == c), all_) for c in range(belonging.shape[1])]


def _dwells(
    own: Periods, amounts: DwellAmounts, chosen: NDArray[np.bool_], fallback: tuple[Rows, Rows] | None = None
) -> tuple[Rows, Rows]:
    """Distributions of off and of on."""
    off, on = (chosen & (own.state == state) for state in range(2))
    return (
        dwell_quantiles(amounts.where(off), fallback and fallback[0]),
        dwell_quantiles(amounts.where(on), fallback and fallback[1]),
    )


def _day_factor(counts: Counts) -> Array:
    """By case, kind of day and hour: the rate on such days over the rate on all days."""
    left, spent = counts.left.sum(axis=0), counts.spent_h.sum(axis=0)
    all_days = curve(left.sum(axis=1), spent.sum(axis=1))[:, None, :]
    return np.asarray((left + DAY_TYPE_PRIOR) / (all_days * spent + DAY_TYPE_PRIOR))


def _pace_sigma(counts: Counts, own_rate: Array) -> float:
    """Spread of people's pace beyond chance: Var(n) = m + m² s² for (effective) counts of mean m."""
    expected = (own_rate * counts.spent_h).sum(axis=(1, 2, 3))
    found = counts.left.sum(axis=(1, 2, 3))
    beyond = float(np.sum((found - expected) ** 2 - expected) / np.sum(expected**2))
    return float(np.sqrt(np.log1p(max(beyond, 0.0))))


def _class(
    weight: float, counts: Counts, belonging: Array, rate: Array, dwell: tuple[Rows, Rows] | None
) -> UserClass:
    midnight = (belonging @ counts.at_midnight).reshape(-1, 2)
    spent = np.einsum("u,uswh->s", belonging, counts.spent_h).reshape(-1, 2)
    share = (spent[:, 1] + 1e-9) / (spent.sum(axis=1) + 2e-9)
    on = (midnight[:, 1] + MIDNIGHT_PRIOR * share) / (midnight.sum(axis=1) + MIDNIGHT_PRIOR)
    by_regime = np.vectorize(_rounded)(rate).reshape(-1, 2, *rate.shape[1:])
    return UserClass.model_validate(
        {
            "weight": weight,
            "on_at_midnight": [_rounded(value) for value in on],
            "leave_per_h": by_regime.tolist(),
            "stay": dwell,
        }
    )


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
