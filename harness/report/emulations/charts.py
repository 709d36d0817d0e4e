"""Figures of an experiment's page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from device_agents.workloads import Metric
from emulator import Accounting, Fate
from emulator.experiments import PAPER_SAVING, MethodRow, Runs, VariantSummary
from emulator.experiments.behaviour import ENERGY_PARTS, Behaviour, chosen_share
from emulator.experiments.curves import CurveAxis, MethodCurves, along
from emulator.experiments.vanilla import AgainstVanilla
from emulator.runs import Course
from emulator.selectors import shown_name
from harness.report.charts import Band, Chart, DotPlot, HeatMap, Scatter, Series, StackedBars
from harness.report.looks import BASELINE_GREY, LineStyle
from joulefleet.interval import Interval
from joulefleet.provenance import Origin

if TYPE_CHECKING:
    from numpy.typing import NDArray

EMULATED = Origin.EMULATED.value
AXES = {
    CurveAxis.ROUND: ("rounds", "round"),
    CurveAxis.TIME: ("virtual time", "virtual time (s): sum of R_T, honest"),
    CurveAxis.ENERGY: ("energy", "energy of all devices (J), honest"),
}
LEARNING = {
    "reward": ("Reward of each round", "reward (points)"),
    "loss": ("Validation loss of the global model", "loss"),
    "selector_td_loss": ("TD loss of the learned selectors", "loss"),
    "selector_rank_loss": ("Rank loss of the learned selectors", "loss"),
}

HOURS = "virtual time (h after the first midnight)"
REASONS = {
    Fate.LEFT: "left",
    Fate.BATTERY: "battery empty",
    Fate.DEADLINE: "too late",
    Fate.DIVERGED: "diverged",
}
BATTERIES = {"battery_median": "median", "battery_low": "lowest tenth ends at"}

MAX_CELLS = 400
"""Of a row of the heat map: about two pixels each. Larger fleets are shown in groups of devices."""


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """A method where a series stands at one value.

    Attributes:
        value: Of the quantity that is varied.
        row: The method's numbers.
        summary: All of that variant.
    """

    value: float
    row: MethodRow
    summary: VariantSummary

    @property
    def vanilla(self) -> AgainstVanilla | None:
        """Its rounds against those without early exit, if it probes."""
        return self.summary.vanilla.get(self.row.method)


Looks = Mapping[str, LineStyle]
"""Of all methods of a page, by `harness.report.looks.method_looks`."""


def accuracy_charts(runs: Runs, metric: Metric, looks: Looks) -> list[Chart]:
    """Test accuracy, or what else the task is judged by, against rounds, time and energy."""
    found = []
    y_label, times = ("accuracy (%)", 100.0) if metric.share else (metric.name, 1.0)
    for axis, (title, label) in AXES.items():
        curves = along(runs, "test_accuracy", axis)
        if curves is not None:
            whole = f"Test {metric.name} against {title}"
            found.append(_chart(curves, looks, whole, label, y_label, times))
    return found


def learning_charts(runs: Runs, looks: Looks) -> list[Chart]:
    """Reward and losses over rounds, of those methods that have them."""
    found = []
    for column, (title, label) in LEARNING.items():
        curves = along(runs, column)
        if curves is not None:
            found.append(_chart(curves, looks, title, "round", label, 1.0))
    return found


def _chart(curves: MethodCurves, looks: Looks, title: str, x_label: str, y_label: str, scale: float) -> Chart:
    series = [
        Series(
            shown_name(method),
            curve.mean * scale,
            low=curve.low * scale,
            high=curve.high * scale,
            style=looks[method],
        )
        for method, curve in curves.methods.items()
    ]
    return Chart(f"{title}; bands hold all seeds", x_label, y_label, curves.x, series, EMULATED)


def cost_scatter(rows: Sequence[MethodRow], metric: Metric, looks: Looks) -> Scatter:
    """Accuracy against energy: methods on the dashed line are beaten by no other in both."""
    points = {shown_name(row.method): (row.energy_j, row.accuracy.times(row.shown_times)) for row in rows}
    name = metric.name.capitalize()
    return Scatter(
        f"{name} against energy without waiting; the dashed line joins what no other method beats in both",
        "energy of all devices (J), every probe counted",
        f"test {metric.name}" + " (%)" * metric.share,
        points,
        {shown_name(row.method): looks[row.method] for row in rows},
        EMULATED,
        metric.higher_is_better,
    )


def forest(rows: Sequence[MethodRow]) -> DotPlot | None:
    """Paired differences from FedAvg; None if nothing is compared with it."""
    compared = {shown_name(row.method): row.against for row in rows if row.against is not None}
    if not compared:
        return None
    honest = Accounting.HONEST
    dots = {
        name: [_less_one(against.energy[honest]), _slower(against.speed[honest])]
        for name, against in compared.items()
    }
    title = "A round against FedAvg's, paired by seed: left of zero is less"
    return DotPlot(title, ("energy", "time"), dots, "%", EMULATED)


def _less_one(ratio: Interval) -> Interval:
    mean, low, high = (100 * (end - 1) for end in (ratio.mean, ratio.low, ratio.high))
    return Interval(mean, low, high)


def _slower(speed: Interval) -> Interval:
    """Time over FedAvg's, from how many times as fast it is."""
    return _less_one(Interval(1 / speed.mean, 1 / speed.high, 1 / speed.low))


def selection_map(runs: Runs) -> HeatMap:
    """Who is chosen how often, with one seed: a device is the same for every method, not for every seed."""
    counts = Counter(seed for by_seed in runs.values() for seed in by_seed)
    seed = min(counts, key=lambda one: (-counts[one], one))
    shares = {shown_name(m): chosen_share(by_seed[seed]) for m, by_seed in runs.items() if seed in by_seed}
    devices = max(map(len, shares.values()))
    size = -(-devices // MAX_CELLS)
    rows = {name: 100 * _group_means(share, size) for name, share in shares.items()}
    without = ", ".join(shown_name(m) for m, by_seed in runs.items() if seed not in by_seed)
    title = f"How often each device was chosen, seed {seed}" + (f" (without {without})" if without else "")
    return HeatMap(title, rows, "device" if size == 1 else f"{size} devices", "% of rounds", EMULATED)


def _group_means(values: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Means of groups of neighbours; the last group may be smaller."""
    starts = np.arange(0, len(values), size)
    means: NDArray[np.float64] = np.add.reduceat(values, starts) / np.diff([*starts, len(values)])
    return means


def energy_bars(behaviours: Mapping[str, Behaviour]) -> StackedBars:
    """Where the energy of a whole run goes, by the name of each bar."""
    rows = {name: [one.energy_j[part] for part in ENERGY_PARTS] for name, one in behaviours.items()}
    title = "Energy of all devices in a whole run, by what it went into; waiting is outside R_E"
    return StackedBars(title, ENERGY_PARTS, rows, "J", EMULATED)


def sweep_charts(quantity: str, points: Sequence[SweepPoint]) -> list[Chart]:
    """Accuracy, energy and speed over a quantity that was varied, and what early exit saves."""
    x = np.array([point.value for point in points])
    rows = [point.row for point in points]
    accuracy = _sweep_series(rows[0].method, [row.accuracy for row in rows], 100.0)
    found = [Chart(f"Accuracy over {quantity}", quantity, "accuracy (%)", x, [accuracy], EMULATED)]

    def chart(
        title: str,
        y_label: str,
        scale: float,
        read: Callable[[Accounting], list[Interval]],
        of_paper: float | None = None,
    ) -> None:
        series = [_sweep_series(a.value.replace("_", " "), read(a), scale) for a in Accounting]
        if of_paper is not None:  # which value of the quantity it belongs to, the paper does not say
            level = np.full(len(x), scale * of_paper)
            series.append(Series("the paper, M not stated", level, style=LineStyle(BASELINE_GREY, (8, 4))))
        found.append(Chart(f"{title} over {quantity}", quantity, y_label, x, series, EMULATED))

    against = [row.against for row in rows if row.against]
    if len(against) == len(rows):
        chart("Energy per round", "% of FedAvg", 100.0, lambda a: [one.energy[a] for one in against])
        chart("Speed per round", "times FedAvg", 1.0, lambda a: [one.speed[a] for one in against])
    vanilla = [point.vanilla for point in points if point.vanilla]
    if len(vanilla) == len(points):
        chart(
            "Energy saved by early exit", "% of vanilla", 100.0,
            lambda a: [one.savings[a].energy for one in vanilla], PAPER_SAVING.energy_saved,
        )  # fmt: skip
        chart(
            "Time saved by early exit", "% of vanilla", 100.0,
            lambda a: [one.savings[a].time for one in vanilla], PAPER_SAVING.time_saved,
        )  # fmt: skip
    # What early exit saves is what a series over candidates is about.
    return sorted(found, key=lambda one: "saved" not in one.title)


def _sweep_series(label: str, values: Sequence[Interval], scale: float) -> Series:
    mean, low, high = (
        np.array([getattr(value, end) for value in values]) * scale for end in ("mean", "low", "high")
    )
    return Series(label, mean, points=True, low=low, high=high)


def course_charts(course: Course) -> list[Chart]:
    """A world over its days, a chart a question, nights shaded; none for what did not happen."""
    nights = [Band(a, b, "night", "night: 22 to 6 h") for a, b in course.nights]
    reasons = [
        Series(REASONS[fate], counts, points=True) for fate, counts in course.dropped.items() if counts.any()
    ]
    levels = [
        Series(BATTERIES[name], level) for name, level in course.batteries.items() if np.isfinite(level).any()
    ]
    load = [Series("participants", course.under_load)] if np.nansum(course.under_load) else []
    wanted = [
        ("Devices that might train", "devices", [Series("eligible", course.eligible)]),
        ("Participants beside an app", "of a round's participants (%)", load),
        ("Drop-outs by reason", "devices of a round", reasons),
        ("Batteries of the fleet", "level (%)", sorted(levels, key=lambda one: one.label, reverse=True)),
    ]
    return [
        Chart(title, HOURS, label, course.hours, series, EMULATED, bands=nights)
        for title, label, series in wanted
        if series
    ]
