"""Tables of an experiment as text, Markdown or CSV, and the data behind its curves."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from emulator.compare.load import BASELINE
from emulator.compare.render import interval_text
from emulator.compare.statistics import Interval
from emulator.experiments.curves import Axis, along
from emulator.experiments.results import ExperimentResults
from emulator.experiments.summary import MethodRow, VariantSummary, summarise
from emulator.experiments.vanilla_table import HEADER as VANILLA_HEADER
from emulator.experiments.vanilla_table import NOTE as VANILLA_NOTE
from emulator.experiments.vanilla_table import PAPER as VANILLA_PAPER
from emulator.experiments.vanilla_table import vanilla_numbers, vanilla_rows
from emulator.outcome import Accounting
from emulator.selectors.base import shown_name

HEADER = (
    "method",
    "seeds",
    "accuracy %",
    "energy % of FedAvg: honest",
    "selected only",
    "free",
    "speed x FedAvg: honest",
    "selected only",
    "free",
    "paper: accuracy",
    "energy %",
    "speed x",
)
TARGET_HEADER = (
    "method",
    "reached",
    "rounds to target",
    "time to target s",
    "energy to target J",
    "time in all s",
    "energy in all J",
    "best accuracy %",
    "accuracy - FedAvg, points",
    "p (Holm)",
)
LEGEND = (
    "Accuracy: mean test accuracy of the last 10 rounds; means over seeds [95 % interval]; energy and speed "
    "per round, paired by seed; >= x (7/10): 7 of 10 runs reached the target, the others count with their "
    "whole length, so the mean is a lower bound"
)
NUMBER_COLUMNS = (
    "variant", "method", "seeds", "quantity", "mean", "low_95", "high_95", "reached", "reduced",
)  # fmt: skip
CURVE_COLUMNS = ("test_accuracy", "reward", "loss", "selector_td_loss", "selector_rank_loss")


def main_row(row: MethodRow) -> list[str]:
    """Accuracy, energy and speed, beside the paper's."""
    against, paper = row.against, row.paper
    if against is None:
        # FedAvg is the unit; without it nothing is known.
        ratios = ["100", "100", "100", "1", "1", "1"] if row.method == BASELINE else ["-"] * 6
    else:
        ratios = [interval_text(against.energy[a], 100) for a in Accounting]
        ratios += [interval_text(against.speed[a]) for a in Accounting]
    printed = (
        ["-"] * 3 if paper is None else [paper.accuracy_text, f"{paper.energy_percent:g}", f"{paper.speed:g}"]
    )
    return [shown_name(row.method), str(row.seeds), interval_text(row.accuracy, 100), *ratios, *printed]


def target_row(row: MethodRow) -> list[str]:
    """What it takes to the target, and in all."""
    against = row.against
    to_target = (row.rounds_to_target, row.time_to_target_s, row.energy_to_target_j)
    return [
        shown_name(row.method),
        f"{row.reached}/{row.seeds}",
        *(bounded_text(value, row.reached, row.seeds) for value in to_target),
        interval_text(row.time_s),
        interval_text(row.energy_j),
        interval_text(row.best_accuracy, 100),
        "-" if against is None else interval_text(against.accuracy, 100),
        "-" if against is None or math.isnan(against.p_holm) else f"{against.p_holm:.3g}",
    ]


def bounded_text(value: Interval, reached: int, seeds: int) -> str:
    """A restricted mean; where runs missed the target, a lower bound with how many did reach it."""
    text = interval_text(value)
    return text if reached == seeds else f">= {text} ({reached}/{seeds})"


def basis(summary: VariantSummary) -> str:
    """What a variant's numbers rest on."""
    facts = summary.facts
    return f"Emulated: {facts['energy']} energy, costs {facts['cost_origin']}, training {facts['trainer']}"


def notes(summary: VariantSummary) -> list[str]:
    """What stands with every table."""
    return [
        f"Unlike the paper: {summary.reductions}",
        *([few] if (few := few_pairs(summary)) else []),
        f"Target {summary.target:.2%}: {summary.target_note}",
        LEGEND,
        *([VANILLA_NOTE, VANILLA_PAPER] if summary.vanilla else []),
        basis(summary),
    ]


def few_pairs(summary: VariantSummary) -> str:
    """Methods whose comparison with FedAvg rests on fewer seeds than they have."""
    fewer = [
        f"{shown_name(row.method)} {row.against.pairs} of {row.seeds}"
        for row in summary.rows
        if row.against is not None and row.against.pairs < row.seeds
    ]
    return f"Against FedAvg only seeds that both have: {', '.join(fewer)}" if fewer else ""


def as_text(results: ExperimentResults) -> str:
    """For a terminal."""
    parts = [f"warning: {warning}" for warning in results.warnings]
    for summary in summarise(results):
        parts += ["", summary.variant.title]
        for header, rows in _tables(summary):
            parts += _aligned(header, rows)
            parts.append("")
        parts += notes(summary)
    for title, header, rows in across(results):
        parts += ["", title, *_aligned(header, rows)]
    return "\n".join(parts).strip("\n")


def _aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in (header, *rows)]


def _piped(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rows))


def as_markdown(results: ExperimentResults) -> str:
    """For a page."""
    plan = results.plan
    parts = [f"# {plan.name}, {plan.preset.value}", f"{plan.question}."]
    parts += [f"> {warning}" for warning in results.warnings]
    for summary in summarise(results):
        parts.append(f"## {summary.variant.title}")
        parts += [_piped(header, rows) for header, rows in _tables(summary)]
        parts.append("\n".join(f"- {note}" for note in notes(summary)))
    for title, header, rows in across(results):
        parts += [f"## {title}", _piped(header, rows)]
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
        ("All scenarios: accuracy %", header, table(lambda row: interval_text(row.accuracy, 100))),
        (
            "All scenarios: s per round, honest",
            header,
            table(lambda row: interval_text(row.round_time_s[honest])),
        ),
        (
            "All scenarios: J per round, honest",
            header,
            table(lambda row: interval_text(row.round_energy_j[honest])),
        ),
    ]


def _tables(summary: VariantSummary) -> list[tuple[Sequence[str], list[list[str]]]]:
    return [
        (HEADER, [main_row(row) for row in summary.rows]),
        (TARGET_HEADER, [target_row(row) for row in summary.rows]),
        *([(VANILLA_HEADER, vanilla_rows(summary.vanilla))] if summary.vanilla else []),
    ]


def as_csv(results: ExperimentResults) -> str:
    """One row per number."""
    return _csv(NUMBER_COLUMNS, [list(line.values()) for line in as_data(results)])


def as_data(results: ExperimentResults) -> list[dict[str, Any]]:
    """One entry per number, in SI units and shares, the paper's among them; ``None`` for unknown."""
    lines = []
    for summary in summarise(results):
        for row in summary.rows:
            start = [summary.variant.name, row.method, row.seeds]
            numbers = [*_numbers(row), *_saved(summary, row.method)]
            for line in [["target", summary.target, None, None, None], *numbers]:
                values = [*start, *line, summary.reductions]
                lines.append(dict(zip(NUMBER_COLUMNS, values, strict=True)))
    return lines


def _numbers(row: MethodRow) -> list[list[Any]]:
    plain = ("accuracy", "best_accuracy", "time_s", "energy_j")
    censored = ("rounds_to_target", "time_to_target_s", "energy_to_target_j")
    lines = [[name, *_ends(getattr(row, name)), None] for name in plain]
    lines += [[name, *_ends(getattr(row, name)), row.reached] for name in censored]
    for accounting in Accounting:
        lines.append([f"round_time_s_{accounting.value}", *_ends(row.round_time_s[accounting]), None])
        lines.append([f"round_energy_j_{accounting.value}", *_ends(row.round_energy_j[accounting]), None])
        if row.against is not None:
            lines.append(
                [f"energy_of_fedavg_{accounting.value}", *_ends(row.against.energy[accounting]), None]
            )
            lines.append([f"speed_x_fedavg_{accounting.value}", *_ends(row.against.speed[accounting]), None])
    if row.against is not None:
        lines.append(["accuracy_minus_fedavg", *_ends(row.against.accuracy), None])
        lines.append(["accuracy_minus_fedavg_p_holm", _known(row.against.p_holm), None, None, None])
    if row.paper is not None:
        lines.append(["paper_accuracy", row.paper.share, None, None, None])
        if row.paper.reached_in_round is not None:
            lines.append(["paper_accuracy_in_round", row.paper.reached_in_round, None, None, None])
        lines.append(["paper_energy_of_fedavg", row.paper.energy_percent / 100, None, None, None])
        lines.append(["paper_speed_x_fedavg", row.paper.speed, None, None, None])
    return lines


def _saved(summary: VariantSummary, method: str) -> list[list[Any]]:
    found = summary.vanilla.get(method)
    return [] if found is None else [[n, *_ends(v), None] for n, v in vanilla_numbers(found).items()]


def _ends(value: Interval) -> list[Any]:
    return [_known(number) for number in (value.mean, value.low, value.high)]


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number


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
    return _csv(["variant", "method", "quantity", "along", "x", "mean", "low", "high"], lines)


def _axes(column: str) -> tuple[Axis, ...]:
    return tuple(Axis) if column == "test_accuracy" else (Axis.ROUND,)


def _csv(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return out.getvalue()
