"""The page of an experiment: its tables beside the paper's, curves, behaviour, and how the paper was read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from emulator.compare.titles import target_text, worded
from emulator.experiments import ExperimentResults, MethodRow, VariantSummary, summarise, switches_of
from emulator.experiments.behaviour import behaviour
from emulator.experiments.render import (
    HEADER,
    LEGEND,
    TARGET_HEADER,
    across,
    basis,
    headed,
    main_row,
    pair_notes,
    target_row,
)
from emulator.experiments.vanilla import HEADER as VANILLA_HEADER
from emulator.experiments.vanilla import NOTE as VANILLA_NOTE
from emulator.experiments.vanilla import PAPER as VANILLA_PAPER
from emulator.experiments.vanilla import vanilla_rows
from emulator.selectors import shown_name
from harness.report.emulations.answers import sweep_answers, variant_answers
from harness.report.emulations.charts import (
    Looks,
    accuracy_charts,
    cost_scatter,
    energy_bars,
    forest,
    learning_charts,
    selection_map,
)
from harness.report.emulations.tables import (
    GOAL_HEADER,
    PAPER_COLUMNS,
    SHORT_HEADER,
    SHORT_NOTE,
    dropped_table,
    energy_table,
    fairness_table,
    goal_row,
    short_cells,
    sweep_sections,
)
from harness.report.looks import method_looks
from harness.report.page import Figure, Fold, Page, Section, Table
from joulefleet.provenance import Origin
from joulefleet.runstore import RunRecord
from joulefleet.runstore.notes import RunNote

MOST_ANSWERED = 4
"""Scenarios that the first lines have room for."""


def experiment_page(results: ExperimentResults, run: RunRecord, notes: Sequence[RunNote] = ()) -> Page:
    """Put an experiment's results on one page."""
    plan = results.plan
    summaries = summarise(results)
    warnings = [*results.warnings, *(f"{one.variant.title}: {w}" for one in summaries for w in one.warnings)]
    sections = [warnings_section(warnings)] if warnings else []
    series = sweep_sections(summaries)
    compared = [one for one in summaries if one.variant.swept is None]
    # Where the methods' own scenarios hold one method each, the series are what the experiment is about.
    series_first = bool(series) and all(len(one.rows) < 2 for one in compared)
    sections += series if series_first else []
    looks = method_looks(method for one in compared for method in one.runs)
    for summary in compared:
        sections += [
            *variant_tables(summary, looks),
            variant_curves(summary, looks),
            *vanilla_sections(summary),
        ]
    sections += [] if series_first else series
    answers = sweep_answers(summaries) + [
        f"{one.variant.title}: {answer}" if len(summaries) > 1 else answer
        for one in compared[:MOST_ANSWERED]
        for answer in ([] if series_first else variant_answers(one))
    ]
    sections += _across(results)
    sections.append(_reading(summaries))
    return Page(
        title=f"Experiment {plan.name}",
        lead=f"{plan.question}. Preset {plan.preset.value}; emulated on a virtual clock.",
        answers=answers,
        notes=notes,
        sections=sections,
        facts={
            "run": run.run_id,
            "command": " ".join(run.command),
            "status": run.status.value,
            "runs": f"{len(results.runs)} of {len(plan.planned)}",
            "seeds": ", ".join(map(str, sorted({one.seed for one in results.runs}))),
            **run.host,
        },
    )


def warnings_section(warnings: Sequence[str]) -> Section:
    """What a reader has to know first."""
    return Section("Before you read on", " ".join(f"{warning}." for warning in warnings))


def variant_tables(summary: VariantSummary, looks: Looks, title: str = "") -> list[Section]:
    """What every method reached and took; folded away, each number beside the paper's and FedAvg's."""
    title = title or summary.variant.title
    rows = sorted(summary.rows, key=_by_result)
    best = {0} if _clearly_first(rows) else set()
    goal = target_text(summary.target, summary.metric, 2)
    costs = Table(
        [*headed(GOAL_HEADER, summary), "here"],
        [[*goal_row(row), Origin.EMULATED] for row in rows],
        f"Best first, by the energy to {goal} ({summary.target_note}). {_marked(rows)}",
        best,
    )
    compared = forest(rows)
    scatter = (
        [cost_scatter(rows, summary.metric, looks)] if len(rows) > 1 else []
    )  # one point compares nothing
    figures: list[Figure] = [*scatter, *([compared] if compared else [])]
    how = f"{worded(LEGEND, summary.metric)}. {basis(summary)}."
    first = Section(title, charts=figures, tables=[costs], small_print=how)
    return [first, _every_number(summary, rows, title)]


def _clearly_first(rows: Sequence[MethodRow]) -> bool:
    """Whether the first needs less than all others that reach the target, beyond the intervals of both."""
    mine = rows[0].energy_to_target_j
    others = [row.energy_to_target_j for row in rows[1:] if row.reached == row.seeds]
    reached = rows[0].reached == rows[0].seeds and len(rows) > 1
    return reached and mine.known and all(one.known and mine.high < one.low for one in others)


def _marked(rows: Sequence[MethodRow]) -> str:
    if len(rows) < 2:
        return ""
    if _clearly_first(rows):
        return "Marked: its interval lies below all others."
    known = all(row.energy_to_target_j.known for row in rows)
    return f"None is marked: {'intervals overlap' if known else 'not all have an interval'}."


def _by_result(row: MethodRow) -> tuple[int, float]:
    """Methods that reach the target more often first, then those that need less for it."""
    cost_j = row.energy_to_target_j.mean
    return (row.seeds - row.reached, math.inf if math.isnan(cost_j) else cost_j)


def _every_number(summary: VariantSummary, rows: Sequence[MethodRow], title: str) -> Section:
    reduced = " ".join(
        f"{note}." for note in (f"Unlike the paper: {summary.reductions}", *pair_notes(summary))
    )
    short = [short_cells(row) for row in rows]
    printed = any(row.paper for row in rows)
    return Section(
        f"{title}: every number",
        reduced,
        folded=True,
        tables=[
            *([Table(headed(SHORT_HEADER, summary), short, SHORT_NOTE)] if printed else []),
            Table(
                [*headed(HEADER[:-PAPER_COLUMNS], summary), "here"],
                [[*main_row(row)[:-PAPER_COLUMNS], Origin.EMULATED] for row in rows],
                f"{'The same' if printed else 'Means'} with 95 % intervals.",
            ),
            Table(
                [*headed(TARGET_HEADER, summary), "here"],
                [[*target_row(row), Origin.EMULATED] for row in rows],
                f"Target {target_text(summary.target, summary.metric, 2)}: {summary.target_note}.",
            ),
        ],
    )


def vanilla_sections(summary: VariantSummary) -> list[Section]:
    """What early exit saves; none if no method probes."""
    rows = [[*row, Origin.EMULATED] for row in vanilla_rows(summary.vanilla)]
    table = Table([*VANILLA_HEADER, "here"], rows, f"{VANILLA_PAPER}.")
    title = f"{summary.variant.title}: what early exit saves"
    return [Section(title, f"{VANILLA_NOTE}.", tables=[table])] if rows else []


def variant_curves(summary: VariantSummary, looks: Looks) -> Section:
    """How it went: curves, where the energy went; who was chosen, and the numbers, folded away."""
    # The best first: a chart begins with six lines.
    runs = {row.method: summary.runs[row.method] for row in sorted(summary.rows, key=_by_result)}
    found = {shown_name(method): behaviour(by_seed) for method, by_seed in runs.items()}
    return Section(
        f"{summary.variant.title}: curves",
        small_print=f"Unlike the paper: {summary.reductions}. Click a name below a chart to hide its line.",
        charts=[*accuracy_charts(runs, summary.metric, looks), energy_bars(found)],
        folds=[
            Fold(
                "Energy, fairness and drop-outs in numbers",
                tables=[energy_table("method", found), fairness_table(found), dropped_table(found)],
            ),
            Fold("Who was chosen", "and how often", [selection_map(runs)]),
            Fold(
                "Reward and loss", "of the rounds and of the learned selectors", learning_charts(runs, looks)
            ),
        ],
    )


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
        for switch in switches_of(summary.variant):
            by_setting = settings.setdefault((switch.item, switch.what), {})
            by_setting.setdefault(switch.setting, []).append(summary.variant.name)
    rows = [[item, what, _setting(by_setting)] for (item, what), by_setting in settings.items()]
    return Section(
        "How the paper was read",
        "Where the paper is silent or can be read in several ways, this is what was run. Items are those of "
        "the selector notes.",
        folded=True,
        tables=[Table(["item", "what the paper leaves open", "setting here"], rows)],
    )


def _setting(by_setting: Mapping[str, Sequence[str]]) -> str:
    if len(by_setting) == 1:
        return next(iter(by_setting))
    return "; ".join(f"{', '.join(names)}: {setting}" for setting, names in by_setting.items())
