"""What a benchmark reports: a figure with its unit, its spread over repeats, and the bar it is held to."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Literal

from joulefleet.config import ClosedModel

RATIO = "x"
"""Unit of a ratio of two things that were measured side by side in one run."""


class Figure(ClosedModel):
    """One line of the table.

    Attributes:
        benchmark: Module it comes from.
        name: What was measured; the same in every run.
        value: Median over the repeats.
        unit: `RATIO` for a ratio measured in one run; anything else depends on the machine.
        low: Smallest of the repeats.
        high: Largest of the repeats.
        repeats: How often.
        bar: What the value should reach, if there is a bar.
        better: Whether a higher or a lower value is better.
        note: Anything a reader must know.
    """

    benchmark: str
    name: str
    value: float
    unit: str
    low: float
    high: float
    repeats: int
    bar: float | None = None
    better: Literal["higher", "lower"] = "higher"
    note: str = ""

    @property
    def verdict(self) -> str:
        """``ok`` or ``MISSED`` against the bar, empty without one."""
        if self.bar is None:
            return ""
        reached = self.value >= self.bar if self.better == "higher" else self.value <= self.bar
        return "ok" if reached else "MISSED"

    @property
    def held_to(self) -> str:
        """The bar in words, with the verdict; empty without one."""
        if self.bar is None:
            return ""
        return f"{'>=' if self.better == 'higher' else '<='} {self.bar:g} {self.verdict}"


def figure(benchmark: str, name: str, values: Sequence[float], unit: str, **more: Any) -> Figure:
    """A figure from the values of several repeats."""
    return Figure(
        benchmark=benchmark,
        name=name,
        value=statistics.median(values),
        unit=unit,
        low=min(values),
        high=max(values),
        repeats=len(values),
        **more,
    )
