"""Tables of an experiment as text, Markdown or CSV, and the data behind its curves."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

from emulator.compare.statistics import Interval
from emulator.experiments.curves import Axis, along
from emulator.experiments.results import ExperimentResults
from emulator.experiments.summary import MethodRow, VariantSummary, summarise
from emulator.outcome import Accounting

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
    "accuracy: mean test accuracy of the last 10 rounds; means over seeds [95 % interval]; energy and speed "
    "per round, paired by seed; >=: not every run reached the target, so it is a lower bound"
)
CURVE_COLUMNS = ("test_accuracy", "reward", "loss", "selector_td_loss", "selector_rank_loss")


def interval_text(value: Interval, scale: float = 1.0, *, bound: bool = False) -> str:
    """``12.3 [11.9, 12.8]``; without an interval where there is one seed; ``>=`` for a lower bound."""
    if math.isnan(value.mean):
        return "-"
    mean = f"{'>= ' if bound else ''}{value.mean * scale:.4g}"
    return mean if math.isnan(value.low) else f"{mean} [{value.low * scale:.4g}, {value.high * scale:.4g}]"


def method_text(row: MethodRow) -> str:
    """Oracles are marked everywhere."""
    return row.method + (" (oracle)" if row.privileged else "")


def main_row(row: MethodRow) -> list[str]:
    """Accuracy, energy and speed, beside the paper's."""
    against, paper = row.against, row.paper
    if against is None:
        # FedAvg is the unit; without it nothing is known.
        ratios = ["100", "100", "100", "1", "1", "1"] if row.method == "fedavg" else ["-"] * 6
    else:
        ratios = [interval_text(against.energy[a], 100) for a in Accounting]
        ratios += [interval_text(against.speed[a]) for a in Accounting]
    printed = (
        ["-"] * 3 if paper is None else [paper.accuracy_text, f"{paper.energy_percent:g}", f"{paper.speed:g}"]
    )
    return [method_text(row), str(row.seeds), interval_text(row.accuracy, 100), *ratios, *printed]


def target_row(row: MethodRow) -> list[str]:
    """What it takes to the target, and in all."""
    censored = row.reached < row.seeds
    against = row.against
    return [
        method_text(row),
        f"{row.reached}/{row.seeds}",
        interval_text(row.rounds_to_target, bound=censored),
        interval_text(row.time_to_target_s, bound=censored),
        interval_text(row.energy_to_target_j, bound=censored),
        interval_text(row.time_s),
        interval_text(row.energy_j),
        interval_text(row.best_accuracy, 100),
        "-" if against is None else interval_text(against.accuracy, 100),
        "-" if against is None or math.isnan(against.p_holm) else f"{against.p_holm:.3g}",
    ]


def basis(results: ExperimentResults, summary: VariantSummary) -> str:
    """What a variant's numbers rest on."""
    facts = results.facts(summary.variant)
    return f"emulated; {facts['energy']} energy, costs {facts['cost_origin']}, training {facts['trainer']}"


def notes(results: ExperimentResults, summary: VariantSummary) -> list[str]:
    """What stands with every table."""
    return [
        f"reduced: {summary.reductions}",
        f"target {summary.target:.2%}: {summary.target_note}",
        LEGEND,
        basis(results, summary),
    ]


def as_text(results: ExperimentResults) -> str:
    """For a terminal."""
    parts = [f"warning: {warning}" for warning in results.warnings]
    for summary in summarise(results):
        parts += ["", summary.variant.title]
        for header, rows in _tables(summary):
            widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
            parts += [
                "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip()
                for r in (header, *rows)
            ]
            parts.append("")
        parts += notes(results, summary)
    return "\n".join(parts).strip("\n")


def as_markdown(results: ExperimentResults) -> str:
    """For a page."""
    plan = results.plan
    parts = [f"# {plan.name}, {plan.preset.value}", f"{plan.question}."]
    parts += [f"> {warning}" for warning in results.warnings]
    for summary in summarise(results):
        parts.append(f"## {summary.variant.title}")
        for header, rows in _tables(summary):
            table = [header, ["---"] * len(header), *rows]
            parts.append("\n".join("| " + " | ".join(cells) + " |" for cells in table))
        parts.append("\n".join(f"- {note}" for note in notes(results, summary)))
    return "\n\n".join(parts) + "\n"


def _tables(summary: VariantSummary) -> list[tuple[Sequence[str], list[list[str]]]]:
    return [
        (HEADER, [main_row(row) for row in summary.rows]),
        (TARGET_HEADER, [target_row(row) for row in summary.rows]),
    ]


def as_csv(results: ExperimentResults) -> str:
    """One row per number, in SI units and shares; the paper's numbers among them."""
    lines: list[list[Any]] = []
    for summary in summarise(results):
        for row in summary.rows:
            start = [summary.variant.name, row.method, row.seeds]
            lines += [[*start, *line, summary.reductions] for line in _numbers(row)]
    header = ["variant", "method", "seeds", "quantity", "mean", "low_95", "high_95", "reached", "reduced"]
    return _csv(header, lines)


def _numbers(row: MethodRow) -> list[list[Any]]:
    plain = ("accuracy", "best_accuracy", "time_s", "energy_j")
    censored = ("rounds_to_target", "time_to_target_s", "energy_to_target_j")
    lines = [[name, *_ends(getattr(row, name)), ""] for name in plain]
    lines += [[name, *_ends(getattr(row, name)), row.reached] for name in censored]
    for accounting in Accounting:
        lines.append([f"round_time_s_{accounting.value}", *_ends(row.round_time_s[accounting]), ""])
        lines.append([f"round_energy_j_{accounting.value}", *_ends(row.round_energy_j[accounting]), ""])
        if row.against is not None:
            lines.append([f"energy_of_fedavg_{accounting.value}", *_ends(row.against.energy[accounting]), ""])
            lines.append([f"speed_x_fedavg_{accounting.value}", *_ends(row.against.speed[accounting]), ""])
    if row.paper is not None:
        lines.append(["paper_accuracy_percent", row.paper.accuracy, "", "", ""])
        lines.append(["paper_energy_of_fedavg", row.paper.energy_percent / 100, "", "", ""])
        lines.append(["paper_speed_x_fedavg", row.paper.speed, "", "", ""])
    return lines


def _ends(value: Interval) -> list[Any]:
    return ["" if math.isnan(number) else number for number in (value.mean, value.low, value.high)]


def curves_csv(results: ExperimentResults) -> str:
    """The data of the figures: mean, lowest and highest seed of every curve."""
    lines: list[list[Any]] = []
    for variant in results.plan.variants:
        runs = results.of(variant)
        for column in CURVE_COLUMNS:
            for axis in Axis if column == "test_accuracy" else (Axis.ROUND,):
                found = along(runs, column, axis) if runs else None
                for method, curve in (found.methods if found else {}).items():
                    rows = zip(found.x if found else (), curve.mean, curve.low, curve.high, strict=True)
                    start = [variant.name, method, column, axis.value]
                    lines += [[*start, *(f"{v:.6g}" for v in row)] for row in rows if not math.isnan(row[1])]
    return _csv(["variant", "method", "quantity", "along", "x", "mean", "low", "high"], lines)


def _csv(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return out.getvalue()
