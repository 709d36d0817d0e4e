"""Sections of an experiment's page about a quantity that was varied."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.compare import BASELINE
from emulator.experiments import SweptQuantity, VariantSummary
from emulator.experiments.behaviour import behaviour
from emulator.experiments.render import HEADER, LEGEND, TARGET_HEADER, basis, target_row
from emulator.experiments.vanilla import HEADER as VANILLA_HEADER
from emulator.experiments.vanilla import NOTE as VANILLA_NOTE
from emulator.experiments.vanilla import PAPER as VANILLA_PAPER
from emulator.experiments.vanilla import vanilla_rows
from emulator.selectors import shown_name
from harness.report.experiment_charts import SweepPoint, energy_bars, sweep_charts
from harness.report.experiment_tables import energy_table, main_cells, with_badges
from harness.report.page import Figure, Section, Table
from joulefleet.provenance import Origin

CAPTION = f"{VANILLA_NOTE}. {VANILLA_PAPER}."


def _series(summaries: Sequence[VariantSummary]) -> list[SweptQuantity]:
    return list(dict.fromkeys(one.variant.swept for one in summaries if one.variant.swept))


def sweep_sections(summaries: Sequence[VariantSummary]) -> list[Section]:
    """Every series of an experiment."""
    return [section for swept in _series(summaries) for section in _sweep(swept, summaries)]


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
            [swept.quantity, *with_badges(HEADER, "here", "there")],
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
    return Section(title, f"{LEGEND}. {basis(points[0].summary)}.", charts=charts, tables=tables)


def _points(swept: SweptQuantity, summaries: Sequence[VariantSummary], method: str) -> list[SweepPoint]:
    found = [
        SweepPoint(swept.value(one.variant.scenario), row, one)
        for one in summaries
        for row in one.rows
        if row.method == method
    ]
    return sorted(found, key=lambda point: point.value)
