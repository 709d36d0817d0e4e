"""Figures of an experiment's page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from emulator.compare.statistics import Interval
from emulator.experiments.behaviour import ENERGY_PARTS, Behaviour, chosen_share
from emulator.experiments.curves import Axis, Curves, along
from emulator.experiments.results import FinishedRun
from emulator.experiments.summary import MethodRow
from emulator.outcome import Accounting
from emulator.selectors.base import shown_name
from fedjoule.provenance import Origin
from harness.report.charts import Chart, Series
from harness.report.figures import HeatMap, StackedBars

Runs = Mapping[str, Mapping[int, FinishedRun]]
Points = Sequence[tuple[float, MethodRow]]

EMULATED = Origin.EMULATED.value
AXES = {
    Axis.ROUND: ("rounds", "round"),
    Axis.TIME: ("virtual time", "virtual time (s): sum of R_T, honest"),
    Axis.ENERGY: ("energy", "energy of all devices (J), honest"),
}
LEARNING = {
    "reward": ("Reward of each round", "reward (points)"),
    "loss": ("Validation loss of the global model", "loss"),
    "selector_td_loss": ("TD loss of the learned selectors", "loss"),
    "selector_rank_loss": ("Rank loss of the learned selectors", "loss"),
}


def accuracy_charts(runs: Runs) -> list[Chart]:
    """Test accuracy against rounds, time and energy."""
    found = []
    for axis, (title, label) in AXES.items():
        curves = along(runs, "test_accuracy", axis)
        if curves is not None:
            found.append(_chart(curves, f"Test accuracy against {title}", label, "accuracy (%)", 100.0))
    return found


def learning_charts(runs: Runs) -> list[Chart]:
    """Reward and losses over rounds, of those methods that have them."""
    found = []
    for column, (title, label) in LEARNING.items():
        curves = along(runs, column)
        if curves is not None:
            found.append(_chart(curves, title, "round", label, 1.0))
    return found


def _chart(curves: Curves, title: str, x_label: str, y_label: str, scale: float) -> Chart:
    series = [
        Series(shown_name(method), curve.mean * scale, low=curve.low * scale, high=curve.high * scale)
        for method, curve in curves.methods.items()
    ]
    return Chart(f"{title}; bands hold all seeds", x_label, y_label, curves.x, series, EMULATED)


def selection_map(runs: Runs) -> HeatMap:
    """Who is chosen how often, with one seed: a device is the same for every method, not for every seed."""
    counts = Counter(seed for by_seed in runs.values() for seed in by_seed)
    seed = min(counts, key=lambda one: (-counts[one], one))
    rows = {
        shown_name(m): 100 * chosen_share(by_seed[seed]) for m, by_seed in runs.items() if seed in by_seed
    }
    without = ", ".join(shown_name(m) for m, by_seed in runs.items() if seed not in by_seed)
    title = f"How often each device was chosen, seed {seed}" + (f" (without {without})" if without else "")
    return HeatMap(title, rows, "device", "% of rounds", EMULATED)


def energy_bars(behaviours: Mapping[str, Behaviour]) -> StackedBars:
    """Where the energy of a whole run goes."""
    rows = {shown_name(m): [one.energy_j[part] for part in ENERGY_PARTS] for m, one in behaviours.items()}
    return StackedBars(
        "Energy of all devices in a whole run, by what it went into", ENERGY_PARTS, rows, "J", EMULATED
    )


def sweep_charts(quantity: str, points: Points) -> list[Chart]:
    """Accuracy, energy and speed over a quantity that was varied."""
    x = np.array([value for value, _ in points])
    rows = [row for _, row in points]
    energy = [
        _sweep_series(a.value, [row.against.energy[a] for row in rows if row.against], 100.0)
        for a in Accounting
    ]
    speed = [
        _sweep_series(a.value, [row.against.speed[a] for row in rows if row.against], 1.0) for a in Accounting
    ]
    accuracy = [_sweep_series(rows[0].method, [row.accuracy for row in rows], 100.0)]
    found = [Chart(f"Accuracy over {quantity}", quantity, "accuracy (%)", x, accuracy, EMULATED)]
    if all(row.against for row in rows):
        found += [
            Chart(f"Energy per round over {quantity}", quantity, "% of FedAvg", x, energy, EMULATED),
            Chart(f"Speed per round over {quantity}", quantity, "times FedAvg", x, speed, EMULATED),
        ]
    return found


def _sweep_series(label: str, values: Sequence[Interval], scale: float) -> Series:
    mean, low, high = (
        np.array([getattr(value, end) for value in values]) * scale for end in ("mean", "low", "high")
    )
    return Series(label, mean, points=True, low=low, high=high)
