"""Curves over rounds, virtual time and energy: the mean over seeds, and the band that all seeds lie in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from emulator.runs.reading import FinishedRun

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

GRID = 80
"""Points of a curve over time or energy, where every seed has places of its own."""


class CurveAxis(StrEnum):
    """What a curve runs along; time and energy are the sums of the honest R_T and R_E, as in the tables."""

    ROUND = "round"
    TIME = "time_s"
    ENERGY = "energy_j"


@dataclass(frozen=True, slots=True, eq=False)
class MethodCurve:
    """One method over the seeds; NaN where not every seed has a value.

    Attributes:
        mean: Over seeds.
        low: Lowest of all seeds.
        high: Highest of all seeds.
    """

    mean: Values
    low: Values
    high: Values


@dataclass(frozen=True, slots=True, eq=False)
class MethodCurves:
    """All methods over the same places.

    Attributes:
        axis: What ``x`` is.
        x: Places.
        methods: Method to curve.
    """

    axis: CurveAxis
    x: Values
    methods: Mapping[str, MethodCurve]


def along(
    runs: Mapping[str, Mapping[int, FinishedRun]], column: str, axis: CurveAxis = CurveAxis.ROUND
) -> MethodCurves | None:
    """A column of the round tables against rounds, time or energy; ``None`` where nobody has it."""
    known = {
        method: [run.rounds for run in by_seed.values()]
        for method, by_seed in runs.items()
        if all(column in run.rounds and run.rounds[column].notna().any() for run in by_seed.values())
    }
    if not known:
        return None
    lines = {m: [_line(rounds, column, axis) for rounds in tables] for m, tables in known.items()}
    x = _places([line for many in lines.values() for line in many], axis)
    at: Callable[[Values, Values, Values], Values] = _exact if axis is CurveAxis.ROUND else _last_known
    return MethodCurves(axis, x, {m: _curve([at(x, *line) for line in many]) for m, many in lines.items()})


def _line(rounds: pd.DataFrame, column: str, axis: CurveAxis) -> tuple[Values, Values]:
    """Where a run is after each round, and the value there. Profiling (round 0) moves it and has no value."""
    if axis is CurveAxis.ROUND:
        where = rounds["round"].to_numpy(float)
    else:
        where = rounds[f"{axis.value}_honest"].to_numpy(float).cumsum()
    values = rounds[column].to_numpy(float)
    kept = (rounds["round"].to_numpy() > 0) & np.isfinite(values)
    return where[kept], values[kept]


def _places(lines: list[tuple[Values, Values]], axis: CurveAxis) -> Values:
    if axis is CurveAxis.ROUND:
        return np.unique(np.concatenate([where for where, _ in lines]))
    return np.linspace(0.0, max(float(where[-1]) for where, _ in lines), GRID)


def _exact(x: Values, where: Values, values: Values) -> Values:
    found = np.full(len(x), np.nan)
    found[np.searchsorted(x, where)] = values
    return found


def _last_known(x: Values, where: Values, values: Values) -> Values:
    """The model that is there at ``x``: that of the last round that was over; nothing after the end."""
    index = np.searchsorted(where, x, side="right") - 1
    return np.where((index < 0) | (x > where[-1]), np.nan, values[np.maximum(index, 0)])


def _curve(lines: list[Values]) -> MethodCurve:
    table = np.array(lines)
    # NaN spreads on purpose: a mean over those seeds that happen to be left would jump.
    return MethodCurve(table.mean(axis=0), table.min(axis=0), table.max(axis=0))
