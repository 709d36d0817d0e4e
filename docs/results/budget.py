"""Methods against the control that does not probe, from published rounds: ``python docs/results/budget.py``.

Prints, for each world, a table of every method against `no_probe`; one of FedRank against itself with
something changed; one of how often the budgets of its reward were exceeded. Writes the figure. Accounting is
honest: every probe counts.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

from emulator.compare.metrics import RunMetrics, Spending, run_metrics
from emulator.compare.table import Contrast, MethodComparison, compare
from emulator.experiments import load_published
from emulator.experiments.results import ExperimentResults
from emulator.round.outcome import Accounting
from emulator.selectors import shown_name
from joulefleet.interval import Interval

HERE = Path(__file__).parent
FIGURE = HERE / "budget.svg"
DATA, OTHERS, MNIST = "budget-digits", "budget-others", "budget-mnist"
WORLDS = {"digits-static": "where nothing moves", "digits-dir-client": "among people"}
WEEK = "mnist-week"
CONTROL, BASELINE = "no_probe", "fedavg"
TO_TARGET = ("energy_to_target_j", "time_to_target_s")
STATIC, PEOPLE = WORLDS
STILL = "fedrank (policy=fedrank_still)"
CHANGED = (
    *(
        (world, other, world, "fedrank")
        for world in (PEOPLE, STATIC)
        for other in ("fedrank_frozen", STILL, "fedrank_literal", "oort", BASELINE)
    ),
    *((WEEK, other, WEEK, "fedrank") for other in ("fedrank_literal", "oort", BASELINE)),
    *((f"{STATIC}-{m}", "fedrank", STATIC, "fedrank") for m in ("m15", "m100")),
    (f"{STATIC}-printed", "fedrank_literal", STATIC, "fedrank"),
    (f"{STATIC}-m15", "fedrank", STATIC, CONTROL),
)
"""Scenario and method, and what stands beside them on the same seeds."""
PER_ROUND = ("round_energy_j", "round_time_s")
BETTER, WORSE, OPEN = "#2f7fb8", "#d9822b", "#7b8794"
ROW_H, LEFT, PANEL_W, GAP, TOP = 22, 130, 190, 22, 84
TICKS = (0.25, 0.5, 1, 2, 4, 8)

Runs = Mapping[str, Mapping[int, RunMetrics]]


@cache
def data(name: str = DATA) -> ExperimentResults:
    """A published data set."""
    return load_published(HERE / "data" / name)


def metrics_of(results: ExperimentResults, scenario: str) -> Runs:
    """By method and seed; the target is what FedAvg ends with, the budgets half of what it takes."""
    runs = results.of(results.plan.variant(scenario))
    plain = [run_metrics(run.rounds, 1.0, Accounting.HONEST) for run in runs[BASELINE].values()]
    target, energy_j, time_s = (
        float(np.mean([getattr(one, what) for one in plain])) for what in ("accuracy", "energy_j", "time_s")
    )
    half = Spending(energy_j / 2, time_s / 2)
    return {
        method: {
            seed: run_metrics(run.rounds, target, Accounting.HONEST, within=half)
            for seed, run in by_seed.items()
        }
        for method, by_seed in runs.items()
    }


@cache
def groups(scenario: str, name: str = DATA) -> tuple[MethodComparison, ...]:
    """Methods with the same number of seeds, most first, each group with the control and tested by itself."""
    runs = metrics_of(data(name), scenario)
    found = []
    for size in sorted({len(by_seed) for by_seed in runs.values()}, reverse=True):
        group = {method: by_seed for method, by_seed in runs.items() if len(by_seed) == size}
        seeds = set.intersection(*(set(by_seed) for by_seed in group.values()))
        control = {seed: one for seed, one in runs[CONTROL].items() if seed in seeds}
        found.append(compare({**group, CONTROL: control}, (CONTROL,)))
    return tuple(found)


def table(scenario: str, name: str = DATA) -> str:
    """Markdown: every method against the control."""
    lines = []
    for number, group in enumerate(groups(scenario, name)):
        for method, cells in group.cells.items():
            if method == CONTROL and number:
                continue
            seeds = len(group.seeds)
            row = [shown_name(method), f"{cells[TO_TARGET[0]].reached}/{seeds}"]
            for metric in TO_TARGET:
                cell = cells[metric]
                row += ["median " * (cell.reached != seeds) + _text(cell.value), *_times(cell.contrasts)]
            row += [_text(cells["accuracy"].value, 100), *_points(cells["accuracy"].contrasts)]
            row += [_text(cells[f"accuracy_within_{what}"].value, 100) for what in ("energy", "time")]
            lines.append(row)
    header = ["method", "reached", "energy to target, J", "x control", "p (Holm)", "R_T to target, s"]
    header += ["x control", "p (Holm)", "accuracy %", "- control, points", "p (Holm)"]
    return _piped([*header, "within half of FedAvg's energy %", "within half of its R_T %"], lines)


def pairs(name: str = DATA) -> str:
    """Markdown: FedRank with something changed, Oort and FedAvg beside FedRank as it is."""
    lines, results = [], data(name)
    for scenario, method, other, against in CHANGED:
        if scenario not in {one.name for one in results.plan.variants}:
            continue
        mine, base = metrics_of(results, scenario).get(method, {}), metrics_of(results, other)[against]
        both = sorted(set(mine) & set(base))
        if not both:
            continue
        cells = compare(
            {"it": {s: mine[s] for s in both}, "base": {s: base[s] for s in both}}, ("base",)
        ).cells
        reached = "/".join(str(cells[one][TO_TARGET[0]].reached) for one in ("it", "base"))
        beside = shown_name(against) + f", {other}" * (other != scenario)
        row = [scenario, shown_name(method), beside, str(len(both)), reached]
        row += _points(cells["it"]["accuracy"].contrasts)
        for metric in (*TO_TARGET, *PER_ROUND):
            row += _times(cells["it"][metric].contrasts)
        lines.append(row)
    header = ["scenario", "method", "beside", "seeds", "reached, both", "accuracy, points more", "p"]
    for what in ("energy to target", "R_T to target", "energy of a round", "R_T of a round"):
        header += [f"{what}, x", "p"]
    return _piped(header, lines)


def penalties(name: str = DATA) -> str:
    """Markdown: in how many rounds each budget of the reward was exceeded, and what the rewards were."""
    results, lines = data(name), []
    for variant in results.plan.variants:
        for method, by_seed in results.own(variant).items():
            if not method.startswith("fedrank"):
                continue
            rows = []
            for run in by_seed.values():
                rounds, limits = run.rounds[run.rounds["round"] > 0], run.record.facts["budgets"]
                over = [rounds[f"{what}_honest"] > limits[what] for what in ("time_s", "energy_j")]
                over += [rounds["reward"] < 0, rounds["reward"] <= -10]
                rows.append([limits["time_s"], limits["energy_j"], *(100 * one.mean() for one in over)])
            mean = np.mean(rows, axis=0)
            numbers = [*(f"{one:.3g}" for one in mean[:2]), *(f"{one:.0f}" for one in mean[2:])]
            lines.append([variant.name, shown_name(method), *numbers])
    header = ["scenario", "method", "T, s", "E, J", "rounds over T %", "over E %", "reward below 0 %"]
    return _piped([*header, "at -10 or less %"], lines)


def _piped(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _text(value: Interval, times: float = 1) -> str:
    if math.isnan(value.mean):
        return "-"
    mean = f"{value.mean * times:.3g}"
    return mean if math.isnan(value.low) else f"{mean} [{value.low * times:.3g}, {value.high * times:.3g}]"


def _times(contrasts: tuple[Contrast, ...]) -> list[str]:
    if not contrasts:
        return ["-", "-"]
    one = contrasts[0]
    # Where a run missed the target: the ratio of the medians, without an interval.
    return [_text(Interval(one.ratio) if math.isnan(one.factor.mean) else one.factor), f"{one.p_holm:.2g}"]


def _points(contrasts: tuple[Contrast, ...]) -> list[str]:
    if not contrasts:
        return ["-", "-"]
    return [_text(contrasts[0].difference, 100), f"{contrasts[0].p_holm:.2g}"]


def figure() -> str:
    """Energy and time to the target, as multiples of the control's: a panel per world and quantity."""
    rows = {scenario: _ratios(scenario) for scenario in WORLDS}
    methods = list(dict.fromkeys(method for of in rows.values() for method in of))
    every = [
        end for of in rows.values() for pair in of.values() for one in pair for end in (one.low, one.high)
    ]
    low, high = min(0.8, *every), max(1.25, *every)
    bottom = TOP + ROW_H * len(methods)
    width, height = LEFT + 2 * len(WORLDS) * (PANEL_W + GAP), bottom + 30
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
    parts = [
        f'{start} role="img" font-family="system-ui, sans-serif">',
        _label(16, 24, "Energy and time to FedAvg's final accuracy, as multiples of no_probe's", 15, "600"),
        _label(
            16,
            44,
            "every probe counted; mean and 95 % interval; blue: less, orange: more; "
            "hollow: medians, not all runs get there",
            12,
        ),
    ]
    for row, method in enumerate(methods):
        parts.append(_label(LEFT - 12, TOP + ROW_H * (row + 0.5) + 4, method, 12, at="end"))
    for number, (scenario, i) in enumerate((scenario, i) for scenario in WORLDS for i in (0, 1)):
        x = LEFT + number * (PANEL_W + GAP)
        parts.append(_label(x, TOP - 10, f"{('energy', 'time')[i]}, {WORLDS[scenario]}", 12, "600"))
        for tick in (one for one in TICKS if low <= one <= high):
            at = x + _place(tick, low, high)
            parts.append(_line(at, at, TOP, bottom, "#52606d" if tick == 1 else "#e4e7eb", 1))
            parts.append(_label(at, bottom + 16, f"{tick:g}x", 11, at="middle"))
        for row, method in enumerate(methods):
            if method in rows[scenario]:
                value, y = rows[scenario][method][i], TOP + ROW_H * (row + 0.5)
                color = BETTER if value.high < 1 else WORSE if value.low > 1 else OPEN
                fill, at = "#ffffff", x + _place(value.mean, low, high)
                if not math.isnan(value.low):
                    ends = (x + _place(end, low, high) for end in (value.low, value.high))
                    parts.append(_line(*ends, y, y, color, 2))
                    fill = color
                parts.append(f'<circle cx="{at:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{color}"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _ratios(scenario: str) -> dict[str, tuple[Interval, Interval]]:
    """Of the methods with most seeds; of medians, without an interval, where a run missed the target."""
    found = {}
    for method, cells in groups(scenario)[0].cells.items():
        of = [cells[metric].contrasts[0] for metric in TO_TARGET if cells[metric].contrasts]
        pair = [Interval(one.ratio) if math.isnan(one.factor.mean) else one.factor for one in of]
        if pair and not any(math.isnan(one.mean) for one in pair):
            found[method] = (pair[0], pair[1])
    return found


def _place(value: float, low: float, high: float) -> float:
    return PANEL_W * math.log(value / low) / math.log(high / low)


def _line(x1: float, x2: float, y1: float, y2: float, color: str, width: int) -> str:
    place = f'x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"'
    return f'<line {place} stroke="{color}" stroke-width="{width}"/>'


def _label(x: float, y: float, text: str, size: int, weight: str = "400", *, at: str = "start") -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" font-size="{size}" font-weight="{weight}" text-anchor="{at}"'
    return f'<text {place} fill="#1f2933">{text.replace("&", "&amp;")}</text>'


def main() -> None:
    """Print the tables, write the figure."""
    for scenario in WORLDS:
        sys.stdout.write(f"\n{table(scenario)}\n")
    sys.stdout.write(f"\n{table(STATIC, OTHERS)}\n\n{pairs()}\n\n{penalties()}\n")
    sys.stdout.write(f"\n{table(WEEK, MNIST)}\n\n{pairs(MNIST)}\n\n{penalties(MNIST)}\n")
    FIGURE.write_text(figure(), encoding="utf-8")


if __name__ == "__main__":
    main()
