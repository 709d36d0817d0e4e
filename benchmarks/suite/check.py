"""Ratios of this run against those that were published: which have become worse by more than 20 %?

Only ratios are compared: both of their sides were measured in one run, so that they mean the same on another
machine and another day. A ratio counts as worse if its median is, by more than the limit, and if all of its
repeats are on the bad side of all of the published ones. What was measured only once has no spread, and is
shown without a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.result import RATIO, Figure
from benchmarks.suite.records import ModuleResult

LIMIT = 1.2


class Verdict(StrEnum):
    """What became of a ratio."""

    SAME = "ok"
    NOISY = "within the spread"
    ONCE = "measured once"
    NEW = "new"
    WORSE = "WORSE"
    GONE = "GONE"
    FAILED = "FAILED"


BAD = frozenset({Verdict.WORSE, Verdict.GONE, Verdict.FAILED})


@dataclass(frozen=True, slots=True)
class Compared:
    """One ratio then and now; of a module that failed, the module.

    Attributes:
        module: Where it is from.
        name: What it is.
        verdict: What became of it.
        loss: By which factor it is worse; below 1 it is better. ``None`` if one side is missing.
        then: As published.
        now: As measured.
    """

    module: str
    name: str
    verdict: Verdict
    loss: float | None = None
    then: Figure | None = None
    now: Figure | None = None


def compare(published: Iterable[ModuleResult], measured: Iterable[ModuleResult]) -> list[Compared]:
    """Every ratio of the modules that were measured."""
    earlier = {module.module: module for module in published}
    found: list[Compared] = []
    for module in measured:
        if module.error:
            found.append(Compared(module.module, module.error.splitlines()[0], Verdict.FAILED))
        else:
            found += _module(earlier.get(module.module), module)
    return found


def _module(then: ModuleResult | None, now: ModuleResult) -> list[Compared]:
    old = {} if then is None else _ratios(then)
    new = _ratios(now)
    gone = [Compared(now.module, name, Verdict.GONE, then=old[name]) for name in old if name not in new]
    return gone + [
        _pair(old[name], figure) if name in old else Compared(now.module, name, Verdict.NEW, now=figure)
        for name, figure in new.items()
    ]


def _ratios(module: ModuleResult) -> dict[str, Figure]:
    return {figure.name: figure for figure in module.figures if figure.unit == RATIO}


def _pair(then: Figure, now: Figure) -> Compared:
    if now.better == "higher":
        loss, apart = _factor(then.value, now.value), now.high < then.low
    else:
        loss, apart = _factor(now.value, then.value), now.low > then.high
    if loss <= LIMIT:
        verdict = Verdict.SAME
    elif min(then.repeats, now.repeats) < 2:
        verdict = Verdict.ONCE
    else:
        verdict = Verdict.WORSE if apart else Verdict.NOISY
    return Compared(now.benchmark, now.name, verdict, loss, then, now)


def _factor(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator > 0 else float("inf")


def line(one: Compared) -> str:
    """For the terminal."""
    then, now = (_spread(figure) for figure in (one.then, one.now))
    worse = "" if one.loss is None else f"{one.loss:.2f} x worse"
    return f"{one.verdict:<18} {one.module:<24} {one.name:<52} {then:>24} {now:>24}  {worse}".rstrip()


def _spread(figure: Figure | None) -> str:
    return "" if figure is None else f"{figure.value:.3g} ({figure.low:.3g} to {figure.high:.3g})"
