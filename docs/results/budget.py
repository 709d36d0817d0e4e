"""Methods against the control that does not probe, from published rounds: ``python docs/results/budget.py``.

Prints, for every data set below, a table of each method against `no_probe` and one of how often FedRank's
rounds were over their budgets; writes the figure. Accounting is honest: every probe counts.
"""

from __future__ import annotations

import math
import sys
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
WORLDS = {
    "budget-static": ("digits-static", "static world"),
    "budget-week": ("week-in-use-digits", "a week of use"),
}
"""Data set to its main scenario, and what the figure calls it."""
CONTROL, BASELINE = "no_probe", "fedavg"
METRICS = ("energy_to_target_j", "time_to_target_s")
BETTER, WORSE, OPEN = "#2f7fb8", "#d9822b", "#7b8794"
ROW_H, LEFT, PANEL_W, GAP, TOP = 20, 200, 230, 26, 84


@cache
def data(name: str) -> ExperimentResults:
    """A published data set."""
    return load_published(HERE / "data" / name)


def runs_of(name: str, scenario: str) -> dict[str, dict[int, RunMetrics]]:
    """Metrics by method and seed; the target is what FedAvg ends with, the budgets half of what it takes."""
    results = data(name)
    runs = results.of(results.plan.variant(scenario))
    plain = [run_metrics(run.rounds, 1.0, Accounting.HONEST) for run in runs[BASELINE].values()]
    target = float(np.mean([one.accuracy for one in plain]))
    half = Spending(
        *(float(np.mean([getattr(one, what) for one in plain])) / 2 for what in ("energy_j", "time_s"))
    )
    return {
        method: {
            seed: run_metrics(run.rounds, target, Accounting.HONEST, within=half)
            for seed, run in by_seed.items()
        }
        for method, by_seed in runs.items()
    }


@cache
def groups(name: str, scenario: str) -> tuple[MethodComparison, ...]:
    """Methods with the same number of seeds, most first, each group with the control and tested by itself."""
    runs = runs_of(name, scenario)
    sizes = sorted({len(by_seed) for by_seed in runs.values()}, reverse=True)
    found = []
    for size in sizes:
        group = {method: by_seed for method, by_seed in runs.items() if len(by_seed) == size}
        seeds = set.intersection(*(set(by_seed) for by_seed in group.values()))
        control = {seed: one for seed, one in runs[CONTROL].items() if seed in seeds}
        found.append(compare({**group, CONTROL: control}, (CONTROL,)))
    return tuple(found)


def table(name: str, scenario: str) -> str:
    """Markdown: every method against the control."""
    header = [
        "method",
        "seeds",
        "reached",
        "energy to target, J",
        "x control",
        "p (Holm)",
        "R_T to target, s",
    ]
    header += ["x control", "p (Holm)", "accuracy %", "- control, points", "p (Holm)"]
    header += ["within half of FedAvg's energy %", "within half of its R_T %"]
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    for number, group in enumerate(groups(name, scenario)):
        for method, cells in group.cells.items():
            if method == CONTROL and number:
                continue
            reached, seeds = cells["energy_to_target_j"].reached or 0, len(group.seeds)
            row = [shown_name(method), str(seeds), f"{reached}/{seeds}"]
            for metric in METRICS:
                row.append(("" if reached == seeds else "median ") + _text(cells[metric].value))
                row += _against(cells[metric].contrasts)
            row.append(_text(cells["accuracy"].value, 100))
            row += _points(cells["accuracy"].contrasts)
            row += [_text(cells[f"accuracy_within_{what}"].value, 100) for what in ("energy", "time")]
            lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def penalties(name: str) -> str:
    """Markdown: in how many rounds each budget of the reward was exceeded, and what became of the rewards."""
    header = [
        "scenario",
        "method",
        "T, s",
        "E, J",
        "rounds over T %",
        "over E %",
        "reward below 0 %",
        "at -10 %",
    ]
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    results = data(name)
    for variant in results.plan.variants:
        for method, by_seed in results.own(variant).items():
            if not method.startswith("fedrank"):
                continue
            rows = []
            for run in by_seed.values():
                rounds, limits = run.rounds[run.rounds["round"] > 0], run.record.facts["budgets"]
                over = [rounds[f"{what}_honest"] > limits[what] for what in ("time_s", "energy_j")]
                low = [rounds["reward"] < 0, rounds["reward"] <= -10]
                rows.append(
                    [limits["time_s"], limits["energy_j"], *(100 * float(x.mean()) for x in (*over, *low))]
                )
            mean = np.mean(rows, axis=0)
            texts = [
                variant.name,
                shown_name(method),
                *(f"{x:.3g}" for x in mean[:2]),
                *(f"{x:.0f}" for x in mean[2:]),
            ]
            lines.append("| " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _text(value: Interval, times: float = 1) -> str:
    if math.isnan(value.mean):
        return "-"
    if math.isnan(value.low):
        return f"{value.mean * times:.3g}"
    return f"{value.mean * times:.3g} [{value.low * times:.3g}, {value.high * times:.3g}]"


def _against(contrasts: tuple[Contrast, ...]) -> list[str]:
    if not contrasts:
        return ["-", "-"]
    one = contrasts[0]
    factor = _text(one.factor) if not math.isnan(one.factor.mean) else f"{one.ratio:.3g}"
    return [factor.replace("nan", "-"), f"{one.p_holm:.3g}"]


def _points(contrasts: tuple[Contrast, ...]) -> list[str]:
    return [_text(contrasts[0].difference, 100), f"{contrasts[0].p_holm:.3g}"] if contrasts else ["-", "-"]


def figure(names: tuple[str, ...]) -> str:
    """Energy and time to the target, as multiples of the control's, a panel per world and quantity."""
    rows = {name: _ratios(name) for name in names}
    methods = list(dict.fromkeys(m for one in rows.values() for m in one))
    ends = [
        end
        for one in rows.values()
        for pair in one.values()
        for i in pair
        for end in (i.low, i.high)
        if end > 0
    ]
    low, high = min(0.8, *ends), max(1.25, *ends)
    width = LEFT + len(names) * 2 * (PANEL_W + GAP)
    height = TOP + ROW_H * len(methods) + 48
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
    parts = [
        f'{start} role="img" font-family="system-ui, sans-serif">',
        _label(16, 24, "Energy and time to FedAvg's final accuracy, as multiples of no_probe's", 15, "600"),
        _label(
            16,
            44,
            "every probe counted; means and 95 % intervals over paired seeds; blue: less, orange: more",
            12,
        ),
    ]

    def place(value: float) -> float:
        return PANEL_W * math.log(value / low) / math.log(high / low)

    for row, method in enumerate(methods):
        parts.append(_label(LEFT - 12, TOP + ROW_H * (row + 0.5) + 4, shown_name(method), 12, at="end"))
    panels = [(name, i) for name in names for i in (0, 1)]
    for number, (name, i) in enumerate(panels):
        x = LEFT + number * (PANEL_W + GAP)
        parts.append(_label(x, TOP - 10, f"{WORLDS[name][1]}: {('energy', 'time')[i]}", 12, "600"))
        bottom = TOP + ROW_H * len(methods)
        for tick in (0.25, 0.5, 1, 2, 4, 8):
            if low <= tick <= high:
                at, dark = x + place(tick), "#52606d" if tick == 1 else "#e4e7eb"
                parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{bottom}" stroke="{dark}"/>')
                parts.append(_label(at, bottom + 16, f"{tick:g}x", 11, at="middle"))
        for row, method in enumerate(methods):
            if method not in rows[name]:
                continue
            value, y = rows[name][method][i], TOP + ROW_H * (row + 0.5)
            color = BETTER if value.high < 1 else WORSE if value.low > 1 else OPEN
            ends_of = x + place(value.low), x + place(value.high)
            parts.append(
                f'<line x1="{ends_of[0]:.1f}" x2="{ends_of[1]:.1f}" y1="{y}" y2="{y}" stroke="{color}" '
                'stroke-width="2"/>'
            )
            parts.append(f'<circle cx="{x + place(value.mean):.1f}" cy="{y}" r="4" fill="{color}"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _ratios(name: str) -> dict[str, tuple[Interval, Interval]]:
    """Of the methods with most seeds that reached the target with all of them."""
    cells = groups(name, WORLDS[name][0])[0].cells
    found = {}
    for method, of in cells.items():
        pair = tuple(of[metric].contrasts[0].factor for metric in METRICS if of[metric].contrasts)
        if len(pair) == 2 and not any(math.isnan(one.low) for one in pair):
            found[method] = pair
    return found  # type: ignore[return-value]


def _label(x: float, y: float, text: str, size: int, weight: str = "400", *, at: str = "start") -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" font-size="{size}" font-weight="{weight}" text-anchor="{at}"'
    return f'<text {place} fill="#1f2933">{text.replace("&", "&amp;")}</text>'


def main() -> None:
    """Print the tables, write the figure."""
    for name, (scenario, title) in WORLDS.items():
        sys.stdout.write(f"\n{title}\n\n{table(name, scenario)}\n\n{penalties(name)}\n")
    FIGURE.write_text(figure(tuple(WORLDS)), encoding="utf-8")


if __name__ == "__main__":
    main()
