"""Costs to a target of which some runs never got there: no mean, but what can be said without inventing one.

A run that missed the target says only that it would have taken more than its whole length. So there is the
share of runs that reached it, the Kaplan-Meier median, and a test of ranks in which such runs share the last
places. A mean over whole lengths would depend on when runs were stopped, and Student's interval of it means
nothing.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from joulefleet.interval import Interval, Scale, student_interval

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]


def kaplan_meier_median(values: Values, reached: Flags) -> float:
    """The cost by which half of the runs have reached the target; NaN if half of them never do.

    Args:
        values: Cost to the target, or of the whole run where it was missed.
        reached: Which runs reached it.
    """
    left = 1.0
    for cost in np.unique(values[reached]):
        at_risk = int((values >= cost).sum())
        left *= 1.0 - int((values[reached] == cost).sum()) / at_risk
        if left <= 0.5 + 1e-12:
            return float(cost)
    return math.nan


def cost_to_target(values: Values, reached: Flags, scale: Scale) -> Interval:
    """The mean with Student's interval if every run reached the target, else the median without one."""
    if reached.all():
        return student_interval(values, scale)
    return Interval(kaplan_meier_median(values, reached))


def last_where_missed(
    mine: Values, my_reached: Flags, theirs: Values, their_reached: Flags
) -> tuple[Values, Values]:
    """The place of each run among all runs of both methods; ties share theirs.

    Runs that missed the target share the last places, however early they ended.
    """
    from scipy.stats import rankdata

    costs = np.concatenate([np.where(my_reached, mine, np.inf), np.where(their_reached, theirs, np.inf)])
    places = np.asarray(rankdata(costs), np.float64)
    return places[: len(mine)], places[len(mine) :]


def cost_text(text: str, reached: int, seeds: int) -> str:
    """A cost to the target as tables show it, where ``text`` is its mean or median."""
    if reached == seeds:
        return text
    return f"median {text}" if text != "-" else "half never reach it"
