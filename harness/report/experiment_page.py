"""The page of an experiment: its tables beside the paper's, curves, behaviour, and how the paper was read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from emulator.compare.load import BASELINE
from emulator.compare.statistics import Interval
from emulator.experiments.behaviour import DROPPED, Behaviour, behaviour
from emulator.experiments.plan import Swept
from emulator.experiments.render import (
    HEADER,
    LEGEND,
    TARGET_HEADER,
    across,
    basis,
    main_row,
    pair_notes,
    target_row,
)
from emulator.experiments.results import ExperimentResults
from emulator.experiments.summary import MethodRow, VariantSummary, summarise
from emulator.experiments.switches import switches
from emulator.outcome import Accounting
from emulator.selectors.base import shown_name
from fedjoule.provenance import Origin
from fedjoule.runstore import RunRecord
from harness.report.experiment_charts import (
    accuracy_charts,
    energy_bars,
    learning_charts,
    selection_map,
    sweep_charts,
)
from harness.report.page import Cell, Fold, Page, Section, Table

PAPER_COLUMNS = 3
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


def experiment_page(results: ExperimentResults, run: RunRecord) -> Page:
    """Put an experiment's results on one page."""
    plan = results.plan
    summaries = summarise(results)
    sections = [_warnings(results)] if results.warnings else []
    for summary in summaries:
        if summary.variant.swept is None:
            sections += [variant_tables(results, summary), variant_curves(results, summary)]
    sections += [_sweep(results, swept, summaries) for swept in _series(summaries)]
    sections += _across(results)
    sections.append(_reading(summaries))
    return Page(
        title=f"Experiment {plan.name}",
        lead=f"{plan.question}. Preset {plan.preset.value}; emulated on a virtual clock.",
        sections=sections,
        facts={
            "run": run.run_id,
            "command": " ".join(run.command),
            "status": run.status.value,
            "runs": f"{len(results.runs)} of {len(plan.planned)}",
            "seeds": ", ".join(map(str, sorted({one.planned.seed for one in results.runs}))),
            **run.host,
        },
    )


def _warnings(results: ExperimentResults) -> Section:
    rows = [[warning] for warning in results.warnings]
    return Section("Before you read on", tables=[Table(["warning"], rows)])


def variant_tables(results: ExperimentResults, summary: VariantSummary) -> Section:
    """What every method reached and took, beside the paper's numbers where there are some."""
    reduced = " ".join(
        f"{note}." for note in (f"Unlike the paper: {summary.reductions}", *pair_notes(summary))
    )
    beside_paper = Table(SHORT_HEADER, [_short_cells(row) for row in summary.rows], f"{SHORT_NOTE} {reduced}")
    printed = any(row.paper for row in summary.rows)
    return Section(
        summary.variant.title,
        f"{LEGEND}. {basis(results, summary)}.",
        tables=[
            *([beside_paper] if printed else []),
            Table(
                [*HEADER[:-PAPER_COLUMNS], "here"],
                [[*main_row(row)[:-PAPER_COLUMNS], Origin.EMULATED] for row in summary.rows],
                f"{'The same' if printed else 'Means'} with 95 % intervals. {reduced}",
            ),
            Table(
                [*TARGET_HEADER, "here"],
                [[*target_row(row), Origin.EMULATED] for row in summary.rows],
                f"Target {summary.target:.2%}: {summary.target_note}. {reduced}",
            ),
        ],
    )


def _with_badges(header: Sequence[str], ours: str, theirs: str) -> list[str]:
    return [*header[:-PAPER_COLUMNS], ours, *header[-PAPER_COLUMNS:], theirs]


def _main_cells(row: MethodRow) -> list[Cell]:
    cells = main_row(row)
    theirs: Cell = Origin.LITERATURE if row.paper else "-"
    return [*cells[:-PAPER_COLUMNS], Origin.EMULATED, *cells[-PAPER_COLUMNS:], theirs]


def _short_cells(row: MethodRow) -> list[Cell]:
    energy, speed = ("100 / 100 / 100", "1 / 1 / 1") if row.method == BASELINE else ("-", "-")
    if row.against is not None:
        energy = _means(row.against.energy, 100)
        speed = _means(row.against.speed, 1)
    full = _main_cells(row)
    return [*full[:2], f"{100 * row.accuracy.mean:.4g}", energy, speed, *full[-PAPER_COLUMNS - 2 :]]


def _means(ratios: Mapping[Accounting, Interval], scale: float) -> str:
    means = [scale * ratios[accounting].mean for accounting in Accounting]
    return " / ".join("-" if math.isnan(mean) else f"{mean:.3g}" for mean in means)


def variant_curves(results: ExperimentResults, summary: VariantSummary) -> Section:
    """How it went: curves, who was chosen, where the energy went, fairness, drop-outs."""
    runs = results.of(summary.variant)
    found = {method: behaviour(by_seed) for method, by_seed in runs.items()}
    return Section(
        f"{summary.variant.title}: curves",
        f"Unlike the paper: {summary.reductions}. Click a name below a chart to hide its line.",
        charts=[*accuracy_charts(runs), selection_map(runs), energy_bars(found)],
        tables=[_fairness(found), _dropped(found)],
        folds=[Fold("Reward and loss", "of the rounds and of the learned selectors", learning_charts(runs))],
    )


def _fairness(found: Mapping[str, Behaviour]) -> Table:
    rows = [
        [shown_name(m), f"{one.gini:.3f}", f"{one.jain:.3f}", f"{one.energy_gini:.3f}", Origin.EMULATED]
        for m, one in found.items()
    ]
    header = ["method", "Gini of times chosen", "Jain of times chosen", "Gini of energy spent", ""]
    return Table(
        header, rows, "Fairness. All alike: Gini 0, Jain 1. Always the same few: Gini near 1, Jain K/N."
    )


def _dropped(found: Mapping[str, Behaviour]) -> Table:
    rows = [
        [
            shown_name(m),
            f"{one.participations:.0f}",
            *(f"{one.dropped[fate]:.4g}" for fate in DROPPED),
            Origin.EMULATED,
        ]
        for m, one in found.items()
    ]
    header = ["method", "participations", *(fate.value for fate in DROPPED), ""]
    return Table(header, rows, "Drop-outs by reason, per run, mean over seeds.")


def _series(summaries: Sequence[VariantSummary]) -> list[Swept]:
    return list(dict.fromkeys(one.variant.swept for one in summaries if one.variant.swept))


def _sweep(results: ExperimentResults, swept: Swept, summaries: Sequence[VariantSummary]) -> Section:
    """A series: its own variants, and the one they start from where it has the method too."""
    own = [one for one in summaries if one.variant.swept == swept]
    bases = [one for one in summaries if one.variant.name == own[0].variant.baseline]
    methods = [row.method for row in own[0].rows if row.method != BASELINE]
    points = {method: _points(swept, [*own, *bases], method) for method in methods}
    header = [swept.quantity, *_with_badges(HEADER, "here", "there")]
    rows = [[f"{value:g}", *_main_cells(row)] for series in points.values() for value, row in series]
    title = bases[0].variant.title if bases else own[0].variant.title
    return Section(
        f"{title}: over {swept.quantity}",
        f"{LEGEND}. {basis(results, own[0])}.",
        charts=[chart for series in points.values() for chart in sweep_charts(swept.quantity, series)],
        tables=[Table(header, rows, f"Unlike the paper: {own[0].reductions}.")],
    )


def _points(swept: Swept, summaries: Sequence[VariantSummary], method: str) -> list[tuple[float, MethodRow]]:
    found = [
        (swept.value(one.variant.scenario), row)
        for one in summaries
        for row in one.rows
        if row.method == method
    ]
    return sorted(found, key=lambda point: point[0])


def _across(results: ExperimentResults) -> list[Section]:
    tables = [
        Table([*header, "here"], [[*row, Origin.EMULATED] for row in rows], title)
        for title, header, rows in across(results)
    ]
    text = "Means over seeds [95 % interval]. Each scenario above says what is smaller than in the paper."
    return [Section("The same methods on every scenario", text, tables=tables)] if tables else []


def _reading(summaries: Sequence[VariantSummary]) -> Section:
    """Which switches were on; where variants differ, each says its own."""
    settings: dict[tuple[str, str], dict[str, list[str]]] = {}
    for summary in summaries:
        for switch in switches(summary.variant):
            by_setting = settings.setdefault((switch.item, switch.what), {})
            by_setting.setdefault(switch.setting, []).append(summary.variant.name)
    rows = [[item, what, _setting(by_setting)] for (item, what), by_setting in settings.items()]
    return Section(
        "How the paper was read",
        "Where the paper is silent or can be read in several ways, this is what was run. Items are those of "
        "the selector notes.",
        tables=[Table(["item", "what the paper leaves open", "setting here"], rows)],
    )


def _setting(by_setting: Mapping[str, Sequence[str]]) -> str:
    if len(by_setting) == 1:
        return next(iter(by_setting))
    return "; ".join(f"{', '.join(names)}: {setting}" for setting, names in by_setting.items())
