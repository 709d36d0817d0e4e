"""Tables of an experiment's page, and its sections about a quantity that was varied."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from emulator import Accounting
from emulator.compare import BASELINE
from emulator.experiments import MethodRow, SweptQuantity, VariantSummary
from emulator.experiments.behaviour import DROPPED, ENERGY_PARTS, Behaviour, behaviour
from emulator.experiments.render import (
    HEADER,
    LEGEND,
    TARGET_HEADER,
    basis,
    bounded_text,
    main_row,
    target_row,
)
from emulator.experiments.vanilla import HEADER as VANILLA_HEADER
from emulator.experiments.vanilla import NOTE as VANILLA_NOTE
from emulator.experiments.vanilla import PAPER as VANILLA_PAPER
from emulator.experiments.vanilla import vanilla_rows
from emulator.selectors import shown_name
from harness.report.emulations.charts import SweepPoint, energy_bars, sweep_charts
from harness.report.page import Cell, Figure, Section, Table
from joulefleet.interval import Interval
from joulefleet.provenance import Origin

PAPER_COLUMNS = 3
GOAL_HEADER = (
    *("method", "accuracy %", "energy to target J", "time to target s", "reached"),
    *("energy in all J", "time in all s", "finished"),
)
SHORT_HEADER = (
    "method",
    "seeds",
    "accuracy %",
    "energy % of FedAvg: honest / selected only / free",
    "speed x FedAvg: honest / selected only / free",
    "here",
    "paper: accuracy",
    "energy %",
    "speed x",
    "there",
)
SHORT_NOTE = (
    "Means, and the paper's numbers beside them: one number per cell there, no seeds, no intervals; a dash "
    "where the paper has none."
)
ENERGY_CAPTION = (
    "Energy of all devices in a whole run, mean over seeds. Waiting for the choice is shown here, but the "
    "paper's R_E and the other tables leave it out."
)


def goal_row(row: MethodRow) -> list[Cell]:
    """What a method reached, and what it took."""
    return [
        shown_name(row.method),
        row.accuracy.text(row.shown_times),
        bounded_text(row.energy_to_target_j, row.reached, row.seeds),
        bounded_text(row.time_to_target_s, row.reached, row.seeds),
        f"{row.reached} of {row.seeds}",
        row.energy_j.text(),
        row.time_s.text(),
        f"{row.finished / row.asked:.0%}" if row.asked else "-",
    ]


def main_cells(row: MethodRow) -> list[Cell]:
    """Accuracy, energy and speed with intervals, the paper's, and badges."""
    cells = main_row(row)
    theirs: Cell = Origin.LITERATURE if row.paper else "-"
    return [*cells[:-PAPER_COLUMNS], Origin.EMULATED, *cells[-PAPER_COLUMNS:], theirs]


def short_cells(row: MethodRow) -> list[Cell]:
    """The same without intervals."""
    energy, speed = ("100 / 100 / 100", "1 / 1 / 1") if row.method == BASELINE else ("-", "-")
    if row.against is not None:
        energy = _means(row.against.energy, 100)
        speed = _means(row.against.speed, 1)
    full = main_cells(row)
    return [
        *full[:2],
        f"{row.shown_times * row.accuracy.mean:.4g}",
        energy,
        speed,
        *full[-PAPER_COLUMNS - 2 :],
    ]


def _means(ratios: Mapping[Accounting, Interval], scale: float) -> str:
    means = [scale * ratios[accounting].mean for accounting in Accounting]
    return " / ".join("-" if math.isnan(mean) else f"{mean:.3g}" for mean in means)


def energy_table(what: str, found: Mapping[str, Behaviour]) -> Table:
    """The numbers of `energy_bars`."""
    rows = [
        [name, *(f"{one.energy_j[part]:.4g}" for part in ENERGY_PARTS), Origin.EMULATED]
        for name, one in found.items()
    ]
    return Table([what, *(f"{part} J" for part in ENERGY_PARTS), "here"], rows, ENERGY_CAPTION)


def fairness_table(found: Mapping[str, Behaviour]) -> Table:
    """How evenly devices are chosen and charged."""
    rows = [
        [name, f"{one.gini:.3f}", f"{one.jain:.3f}", f"{one.energy_gini:.3f}", Origin.EMULATED]
        for name, one in found.items()
    ]
    header = ["method", "Gini of times chosen", "Jain of times chosen", "Gini of energy spent", "here"]
    return Table(
        header, rows, "Fairness. All alike: Gini 0, Jain 1. Always the same few: Gini near 1, Jain K/N."
    )


def dropped_table(found: Mapping[str, Behaviour]) -> Table:
    """Who dropped out, and why."""
    rows = [
        [
            name,
            f"{one.participations:.0f}",
            *(f"{one.dropped[fate]:.4g}" for fate in DROPPED),
            Origin.EMULATED,
        ]
        for name, one in found.items()
    ]
    header = ["method", "participations", *(fate.value for fate in DROPPED), "here"]
    return Table(header, rows, "Drop-outs by reason, per run, mean over seeds.")


CAPTION = f"{VANILLA_NOTE}. {VANILLA_PAPER}."


def sweep_sections(summaries: Sequence[VariantSummary]) -> list[Section]:
    """Every series of an experiment."""
    series = dict.fromkeys(one.variant.swept for one in summaries if one.variant.swept)
    return [section for swept in series for section in _sweep(swept, summaries)]


def _sweep(swept: SweptQuantity, summaries: Sequence[VariantSummary]) -> list[Section]:
    """A series, a section for each method: its own variants, and the one they start from if it has it too."""
    own = [one for one in summaries if one.variant.swept == swept]
    bases = [one for one in summaries if one.variant.name == own[0].variant.baseline]
    title = (bases or own)[0].variant.title
    methods = [row.method for row in own[0].rows if row.method != BASELINE]
    return [
        _series_of(f"{title}: {shown_name(method)} over {swept.quantity}", swept, [*own, *bases], method)
        for method in methods
    ]


def _series_of(title: str, swept: SweptQuantity, summaries: Sequence[VariantSummary], method: str) -> Section:
    points = _points(swept, summaries, method)
    spent = {f"{p.value:g}": behaviour(p.summary.runs[method]) for p in points}
    saved = [
        [f"{p.value:g}", *vanilla_rows({method: p.vanilla})[0], Origin.EMULATED] for p in points if p.vanilla
    ]
    tables = [
        Table(
            [swept.quantity, *HEADER[:-PAPER_COLUMNS], "here", *HEADER[-PAPER_COLUMNS:], "there"],
            [[f"{p.value:g}", *main_cells(p.row)] for p in points],
            f"Unlike the paper: {points[0].summary.reductions}.",
        ),
        Table(
            [swept.quantity, "target %", *TARGET_HEADER, "here"],
            [
                [f"{p.value:g}", f"{100 * p.summary.target:.4g}", *target_row(p.row), Origin.EMULATED]
                for p in points
            ],
            f"Target: {points[0].summary.target_note}.",
        ),
        *([Table([swept.quantity, *VANILLA_HEADER, "here"], saved, CAPTION)] if saved else []),
        energy_table(swept.quantity, spent),
    ]
    bars = energy_bars({f"{swept.quantity} {value}": one for value, one in spent.items()})
    charts: list[Figure] = [*sweep_charts(swept.quantity, points), bars]
    how = f"{LEGEND}. {basis(points[0].summary)}."
    return Section(title, charts=charts, tables=tables, small_print=how)


def _points(swept: SweptQuantity, summaries: Sequence[VariantSummary], method: str) -> list[SweepPoint]:
    found = [
        SweepPoint(swept.value(one.variant.scenario), row, one)
        for one in summaries
        for row in one.rows
        if row.method == method
    ]
    return sorted(found, key=lambda point: point.value)
