"""Tables of an experiment as text or Markdown, and the data behind its curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from emulator.compare.censored import cost_text
from emulator.compare.load import BASELINE
from emulator.compare.render import aligned, piped, smallest_note
from emulator.compare.statistics import INTERVAL_NOTE
from emulator.compare.titles import LAST_TESTED, target_text, worded
from emulator.experiments.curves import CurveAxis, along
from emulator.experiments.results import ExperimentResults
from emulator.experiments.summary import MethodRow, VariantSummary, summarise
from emulator.experiments.vanilla import HEADER as VANILLA_HEADER
from emulator.experiments.vanilla import NOTE as VANILLA_NOTE
from emulator.experiments.vanilla import PAPER as VANILLA_PAPER
from emulator.experiments.vanilla import vanilla_rows
from emulator.round.outcome import Accounting
from emulator.selectors.registry import shown_name
from joulefleet.interval import Interval
from joulefleet.printable import csv_text, markdown_text, printable

HEADER = (
    "method", "seeds", "accuracy %", "energy % of FedAvg: honest", "selected only", "free",
    "speed x FedAvg: honest", "selected only", "free", "paper: accuracy", "energy %", "speed x",
)  # fmt: skip
TARGET_HEADER = (
    "method", "finished", "reached", "rounds to target", "time to target s", "energy to target J",
    "time in all s", "energy in all J", "best accuracy %", "accuracy - FedAvg, points", "p (Holm)",
)  # fmt: skip
LEGEND = (
    f"Accuracy: mean test accuracy of the last {LAST_TESTED} tested rounds; means over seeds; energy and "
    "speed per round, paired by seed; all energies without waiting for the choice; finished: share of the "
    "devices that were to send an update and did; median x (7/10): 7 of 10 runs reached the target, so it is "
    f"Kaplan and Meier's median, without an interval; {INTERVAL_NOTE}"
)
CURVE_COLUMNS = ("test_accuracy", "reward", "loss", "selector_td_loss", "selector_rank_loss")


def main_row(row: MethodRow) -> list[str]:
    """Accuracy, energy and speed, beside the paper's."""
    against, paper = row.against, row.paper
    if against is None:
        # FedAvg is the unit; without it nothing is known.
        ratios = ["100", "100", "100", "1", "1", "1"] if row.method == BASELINE else ["-"] * 6
    else:
        ratios = [against.energy[a].text(100) for a in Accounting]
        ratios += [against.speed[a].text() for a in Accounting]
    printed = (
        ["-"] * 3 if paper is None else [paper.accuracy_text, f"{paper.energy_percent:g}", f"{paper.speed:g}"]
    )
    return [shown_name(row.method), str(row.seeds), row.accuracy.text(row.shown_times), *ratios, *printed]


def target_row(row: MethodRow) -> list[str]:
    """What it takes to the target, and in all."""
    against = row.against
    to_target = (row.rounds_to_target, row.time_to_target_s, row.energy_to_target_j)
    return [
        shown_name(row.method),
        f"{row.finished / row.asked:.0%}" if row.asked else "-",
        f"{row.reached}/{row.seeds}",
        *(bounded_text(value, row.reached, row.seeds) for value in to_target),
        row.time_s.text(),
        row.energy_j.text(),
        row.best_accuracy.text(row.shown_times),
        "-" if against is None else against.accuracy.text(row.shown_times),
        "-" if against is None or math.isnan(against.p_holm) else f"{against.p_holm:.3g}",
    ]


def headed(header: Sequence[str], summary: VariantSummary) -> list[str]:
    """A header with what the task is judged by."""
    return [worded(name, summary.metric) for name in header]


def bounded_text(value: Interval, reached: int, seeds: int) -> str:
    """A mean; where runs missed the target, the median with how many did reach it."""
    text = cost_text(value.text(), reached, seeds)
    return text if reached == seeds else f"{text} ({reached}/{seeds})"


def basis(summary: VariantSummary) -> str:
    """What a variant's numbers rest on."""
    facts = summary.facts
    rests = f"Emulated: {facts['energy']} energy, costs {facts['cost_origin']}, training {facts['trainer']}"
    return "; ".join([rests, *facts.get("not_measured", ())])


def notes(summary: VariantSummary) -> list[str]:
    """What stands with every table."""
    return [
        *(f"Warning: {text}" for text in summary.warnings),
        f"Unlike the paper: {summary.reductions}",
        *pair_notes(summary),
        f"Target {target_text(summary.target, summary.metric, digits=2)}: {summary.target_note}",
        worded(LEGEND, summary.metric),
        *([VANILLA_NOTE, VANILLA_PAPER] if summary.vanilla else []),
        basis(summary),
    ]


def pair_notes(summary: VariantSummary) -> list[str]:
    """On which seeds methods are compared with FedAvg, and how small a p could be at best."""
    found = []
    compared = [(row, row.against) for row in summary.rows if row.against is not None]
    fewer = [
        f"{shown_name(row.method)} {against.pairs} of {row.seeds}"
        for row, against in compared
        if against.pairs < row.seeds
    ]
    if fewer:
        found.append(f"Against FedAvg only seeds that both have: {', '.join(fewer)}")
    tested = [against.pairs for _, against in compared if not math.isnan(against.p_holm)]
    if tested:
        found.append(smallest_note(tested[0], len(tested), "against FedAvg"))
        left = [shown_name(row.method) for row, against in compared if math.isnan(against.p_holm)]
        if left:
            found.append(f"Not tested, since on fewer seeds than the others: {', '.join(left)}")
    return found


def as_text(results: ExperimentResults) -> str:
    """For a terminal."""
    parts = [f"warning: {printable(warning)}" for warning in results.warnings]
    for summary in summarise(results):
        parts += ["", printable(summary.variant.title)]
        for header, rows in _tables(summary):
            parts += aligned(header, rows)
            parts.append("")
        parts += map(printable, notes(summary))
    for title, header, rows in across(results):
        parts += ["", title, *aligned(header, rows)]
    return "\n".join(parts).strip("\n")


def as_markdown(results: ExperimentResults) -> str:
    """For a page."""
    plan = results.plan
    parts = [f"# {plan.name}, {plan.preset.value}", f"{markdown_text(plan.question)}."]
    parts += [f"> {markdown_text(warning)}" for warning in results.warnings]
    for summary in summarise(results):
        parts.append(f"## {markdown_text(summary.variant.title)}")
        parts += [piped(header, rows) for header, rows in _tables(summary)]
        parts.append("\n".join(f"- {markdown_text(note)}" for note in notes(summary)))
    for title, header, rows in across(results):
        parts += [f"## {title}", piped(header, rows)]
    return "\n\n".join(parts) + "\n"


def across(results: ExperimentResults) -> list[tuple[str, list[str], list[list[str]]]]:
    """The same methods on several scenarios: title, header and rows of each table; none for one scenario."""
    summaries = [one for one in summarise(results) if one.variant.swept is None]
    if len(summaries) < 2:
        return []
    header = ["method", *(one.variant.name for one in summaries)]
    methods = dict.fromkeys(row.method for one in summaries for row in one.rows)
    by_method = [{row.method: row for row in one.rows} for one in summaries]

    def table(read: Callable[[MethodRow], str]) -> list[list[str]]:
        return [
            [shown_name(m), *(read(rows[m]) if m in rows else "-" for rows in by_method)] for m in methods
        ]

    honest = Accounting.HONEST
    return [
        (
            worded("All scenarios: accuracy %", summaries[0].metric),
            header,
            table(lambda row: row.accuracy.text(row.shown_times)),
        ),
        (
            "All scenarios: s per round, honest",
            header,
            table(lambda row: row.round_time_s[honest].text()),
        ),
        (
            "All scenarios: J per round, honest",
            header,
            table(lambda row: row.round_energy_j[honest].text()),
        ),
    ]


def _tables(summary: VariantSummary) -> list[tuple[Sequence[str], list[list[str]]]]:
    return [
        (headed(HEADER, summary), [main_row(row) for row in summary.rows]),
        (headed(TARGET_HEADER, summary), [target_row(row) for row in summary.rows]),
        *([(VANILLA_HEADER, vanilla_rows(summary.vanilla))] if summary.vanilla else []),
    ]


def curves_csv(results: ExperimentResults) -> str:
    """The data of the figures: mean, lowest and highest seed of every curve."""
    axes = [(column, axis) for column in CURVE_COLUMNS for axis in _axes(column)]
    lines: list[list[Any]] = []
    for variant in results.plan.variants:
        runs = results.own(variant)
        for column, axis in axes:
            found = along(runs, column, axis)
            if found is None:
                continue
            for method, curve in found.methods.items():
                rows = zip(found.x, curve.mean, curve.low, curve.high, strict=True)
                start = [variant.name, method, column, axis.value]
                lines += [[*start, *(f"{v:.6g}" for v in row)] for row in rows if not math.isnan(row[1])]
    return csv_text(["variant", "method", "quantity", "along", "x", "mean", "low", "high"], lines)


def _axes(column: str) -> tuple[CurveAxis, ...]:
    return tuple(CurveAxis) if column == "test_accuracy" else (CurveAxis.ROUND,)
