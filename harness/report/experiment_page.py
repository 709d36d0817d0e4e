"""The page of an experiment: its tables beside the paper's, curves, behaviour, and how the paper was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emulator.compare.titles import target_text, worded
from emulator.experiments import ExperimentResults, VariantSummary, summarise, switches_of
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
from harness.report.experiment_charts import accuracy_charts, energy_bars, learning_charts, selection_map
from harness.report.experiment_tables import (
    PAPER_COLUMNS,
    SHORT_HEADER,
    SHORT_NOTE,
    dropped_table,
    energy_table,
    fairness_table,
    short_cells,
    sweep_sections,
)
from harness.report.page import Fold, Page, Section, Table
from joulefleet.provenance import Origin
from joulefleet.runstore import RunRecord


def experiment_page(results: ExperimentResults, run: RunRecord) -> Page:
    """Put an experiment's results on one page."""
    plan = results.plan
    summaries = summarise(results)
    warnings = [*results.warnings, *(f"{one.variant.title}: {w}" for one in summaries for w in one.warnings)]
    sections = [warnings_section(warnings)] if warnings else []
    for summary in summaries:
        if summary.variant.swept is None:
            sections += [variant_tables(summary), *vanilla_sections(summary), variant_curves(summary)]
    sections += sweep_sections(summaries)
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
            "seeds": ", ".join(map(str, sorted({one.seed for one in results.runs}))),
            **run.host,
        },
    )


def warnings_section(warnings: Sequence[str]) -> Section:
    """What a reader has to know first."""
    rows = [[warning] for warning in warnings]
    return Section("Before you read on", tables=[Table(["warning"], rows)])


def variant_tables(summary: VariantSummary) -> Section:
    """What every method reached and took, beside the paper's numbers where there are some."""
    reduced = " ".join(
        f"{note}." for note in (f"Unlike the paper: {summary.reductions}", *pair_notes(summary))
    )
    beside_paper = Table(
        headed(SHORT_HEADER, summary), [short_cells(row) for row in summary.rows], f"{SHORT_NOTE} {reduced}"
    )
    printed = any(row.paper for row in summary.rows)
    return Section(
        summary.variant.title,
        f"{worded(LEGEND, summary.metric)}. {basis(summary)}.",
        tables=[
            *([beside_paper] if printed else []),
            Table(
                [*headed(HEADER[:-PAPER_COLUMNS], summary), "here"],
                [[*main_row(row)[:-PAPER_COLUMNS], Origin.EMULATED] for row in summary.rows],
                f"{'The same' if printed else 'Means'} with 95 % intervals. {reduced}",
            ),
            Table(
                [*headed(TARGET_HEADER, summary), "here"],
                [[*target_row(row), Origin.EMULATED] for row in summary.rows],
                f"Target {target_text(summary.target, summary.metric, 2)}: {summary.target_note}. {reduced}",
            ),
        ],
    )


def vanilla_sections(summary: VariantSummary) -> list[Section]:
    """What early exit saves; none if no method probes."""
    rows = [[*row, Origin.EMULATED] for row in vanilla_rows(summary.vanilla)]
    table = Table([*VANILLA_HEADER, "here"], rows, f"{VANILLA_PAPER}.")
    title = f"{summary.variant.title}: what early exit saves"
    return [Section(title, f"{VANILLA_NOTE}.", tables=[table])] if rows else []


def variant_curves(summary: VariantSummary) -> Section:
    """How it went: curves, who was chosen, where the energy went, fairness, drop-outs."""
    runs = summary.runs
    found = {shown_name(method): behaviour(by_seed) for method, by_seed in runs.items()}
    return Section(
        f"{summary.variant.title}: curves",
        f"Unlike the paper: {summary.reductions}. Click a name below a chart to hide its line.",
        charts=[*accuracy_charts(runs, summary.metric), selection_map(runs), energy_bars(found)],
        tables=[energy_table("method", found), fairness_table(found), dropped_table(found)],
        folds=[Fold("Reward and loss", "of the rounds and of the learned selectors", learning_charts(runs))],
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
        tables=[Table(["item", "what the paper leaves open", "setting here"], rows)],
    )


def _setting(by_setting: Mapping[str, Sequence[str]]) -> str:
    if len(by_setting) == 1:
        return next(iter(by_setting))
    return "; ".join(f"{', '.join(names)}: {setting}" for setting, names in by_setting.items())
