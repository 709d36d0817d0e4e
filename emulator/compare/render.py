"""A comparison as text, Markdown, LaTeX, CSV or plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.compare.censored import cost_text
from emulator.compare.statistics import INTERVAL_NOTE, smallest_p
from emulator.compare.titles import LOWER_BOUND, TO_TARGET, WITHOUT_COSTS, called, target_text, title_of
from emulator.selectors.registry import shown_name
from joulefleet.printable import csv_text, markdown_text, printable

if TYPE_CHECKING:
    from emulator.compare.load import ComparedRuns
    from emulator.compare.table import Contrast, MethodComparison, MetricCell

Cells = Sequence[str]
FINISHED_NOTE = (
    "finished: of all devices that were to send an update, the share that did; energies are without waiting "
    "for the choice (wait_j of the tables); >=: a lower bound, as a cost is not known; median: runs missed "
    "the target, so it is Kaplan and Meier's, without an interval, and p is of ranks, those runs last"
)
CSV_COLUMNS = [
    "metric", "method", "mean", "low_95", "high_95", "median", "iqm", "seeds", "reached", "rank", "reference",
    "difference", "difference_low_95", "difference_high_95", "ratio", "p", "p_holm", "tests", "delta",
    "factor", "factor_low_95", "factor_high_95",
    "accounting", "target", "origin", "unknown", "finished",
]  # fmt: skip


def rows(comparison: MethodComparison, metric: str) -> tuple[list[str], list[list[str]]]:
    """Header and one row per method, best mean rank first."""
    _, scale, unit = title_of(metric, comparison.judged_by)
    header = ["method", f"mean [95 %] {unit}".strip(), "n", "finished", "rank"]
    for reference in comparison.references:
        header += [f"vs {shown_name(reference)}", "p (Holm)", "delta"]
    ranks = {m: cells[metric].rank for m, cells in comparison.cells.items()}
    ordered = sorted(ranks, key=lambda m: (np.isnan(ranks[m]), ranks[m], m))
    return header, [_row(comparison, method, metric, scale) for method in ordered]


def pair_rows(comparison: MethodComparison, metric: str) -> tuple[list[str], list[list[str]]]:
    """Header and one row per named pair, in the order in which they were named."""
    _, scale, unit = title_of(metric, comparison.judged_by)
    found = comparison.pairs[metric]
    header = [
        "pair",
        f"difference [95 %] {unit}".strip(),
        f"p (Holm, {len(found)} pair{'s' if len(found) > 1 else ''})",
        "delta",
    ]
    return header, [
        [" vs ".join(map(shown_name, pair)), *_contrast(contrast, scale)] for pair, contrast in found.items()
    ]


def _tables(comparison: MethodComparison, metric: str) -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, header and rows of what is shown of a metric."""
    title = title_of(metric, comparison.judged_by)[0]
    found = [(title, *rows(comparison, metric))]
    if comparison.pairs[metric]:
        found.append((f"{title}, named pairs", *pair_rows(comparison, metric)))
    return found


def _row(comparison: MethodComparison, method: str, metric: str, scale: float) -> list[str]:
    cell = comparison.cells[method][metric]
    value = cell.value.text(scale)
    if cell.reached is not None:
        value = cost_text(value, cell.reached, cell.seeds)
    bound = LOWER_BOUND if cell.unknown else ""
    share, rank = comparison.finished[method], "-" if np.isnan(cell.rank) else f"{cell.rank:.1f}"
    finished = "-" if np.isnan(share) else f"{share:.0%}"
    row = [shown_name(method), bound + value, _seeds(cell), finished, rank]
    by_reference = {contrast.reference: contrast for contrast in cell.contrasts}
    for reference in comparison.references:
        row += _contrast(by_reference.get(reference), scale)
    return row


def _seeds(cell: MetricCell) -> str:
    """How many, of how many; and of how many not all is known."""
    seeds = str(cell.seeds) if cell.reached is None else f"{cell.reached}/{cell.seeds}"
    return f"{seeds}, {cell.unknown} unknown" if cell.unknown else seeds


def _contrast(contrast: Contrast | None, scale: float) -> list[str]:
    if contrast is None:
        return ["", "", ""]
    if np.isnan(contrast.delta):
        return ["-", "-", "-"]
    return [contrast.difference.text(scale), f"{contrast.p_holm:.3g}", f"{contrast.delta:+.2f}"]


def notes(found: ComparedRuns) -> list[str]:
    """What stands with every table."""
    table = found.comparison
    seeds = ", ".join(map(str, table.seeds))
    tests = {
        "against each reference": len(table.cells) - 1 if table.references else 0,
        "of named pairs": len(table.pairs["accuracy"]),
    }
    target = target_text(found.target, table.judged_by)
    within, budgets = found.within, []
    if within.energy_j is not None:
        budgets.append(f"energy budget {within.energy_j:g} J")
    if within.time_s is not None:
        budgets.append(f"time budget {within.time_s:g} s of R_T")
    if budgets:
        budgets.append("for the model after the last tested round within it")
    return [
        f"target {target}, accounting {found.accounting.value}, seeds {seeds}; {found.basis}",
        *([", ".join(budgets)] if budgets else []),
        INTERVAL_NOTE,
        FINISHED_NOTE,
        *(smallest_note(len(table.seeds), count, which) for which, count in tests.items() if count),
    ]


def smallest_note(pairs: int, tests: int, which: str) -> str:
    """How small a p could be at best: with few seeds it is never small, whatever they show."""
    count = f"{tests} test{'s' if tests > 1 else ''}"
    return (
        f"p (Holm), {count} {which}, {pairs} paired seeds: none can be below {smallest_p(pairs, tests):.3g}"
    )


def as_text(found: ComparedRuns, metrics: Sequence[str]) -> str:
    """For a terminal."""
    parts = [f"warning: {printable(warning)}" for warning in found.comparison.warnings]
    for title, header, body in _all_tables(found, metrics):
        parts += ["", printable(title), *aligned(header, body)]
    return "\n".join([*parts, "", *map(printable, notes(found))]).strip("\n")


def as_markdown(found: ComparedRuns, metrics: Sequence[str]) -> str:
    """For a page."""
    parts = [f"> {markdown_text(warning)}" for warning in found.comparison.warnings]
    parts += [
        f"### {markdown_text(title)}\n\n{piped(header, body)}"
        for title, header, body in _all_tables(found, metrics)
    ]
    return "\n\n".join([*parts, "\n".join(f"- {markdown_text(note)}" for note in notes(found))])


def as_latex(found: ComparedRuns, metrics: Sequence[str]) -> str:
    """For a paper; needs ``booktabs``. Warnings and notes are comments."""
    parts = []
    for title, header, body in _all_tables(found, metrics):
        lines = [" & ".join(_tex(cell) for cell in row) + r" \\" for row in (header, *body)]
        columns = "l" + "r" * (len(header) - 1)
        parts.append(
            "\n".join(
                [
                    rf"% {printable(title)}",
                    rf"\begin{{tabular}}{{{columns}}}",
                    r"\toprule",
                    lines[0],
                    r"\midrule",
                    *lines[1:],
                    r"\bottomrule",
                    r"\end{tabular}",
                ]
            )
        )
    comments = "\n".join(f"% {printable(text)}" for text in (*found.comparison.warnings, *notes(found)))
    return "\n\n".join([comments, *parts])


def _all_tables(found: ComparedRuns, metrics: Sequence[str]) -> list[tuple[str, list[str], list[list[str]]]]:
    return [table for metric in metrics for table in _tables(found.comparison, metric)]


_TEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",  # or a method's name would be a command
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


def _tex(text: str) -> str:
    return "".join(_TEX.get(c, c) for c in printable(text)).replace(">=", r"$\geq$")


def as_csv(found: ComparedRuns, metrics: Sequence[str]) -> str:
    """One row per method, metric and reference, numbers in SI units; empty for what is not known."""
    comparison = found.comparison
    lines: list[list[Any]] = []
    for metric in metrics:
        accounting = None if metric in WITHOUT_COSTS else found.accounting.value
        target = found.target if metric in TO_TARGET else None
        for method, by_metric in comparison.cells.items():
            named = [c for (first, _), c in comparison.pairs[metric].items() if first == method]
            cell = by_metric[metric]
            end = [accounting, target, found.origins[method], cell.unknown, comparison.finished[method]]
            lines += [
                [called(metric, comparison.judged_by), method, *row, *end] for row in _csv_rows(cell, named)
            ]
    known = [[None if isinstance(v, float) and np.isnan(v) else v for v in line] for line in lines]
    return csv_text(CSV_COLUMNS, known)


def _csv_rows(cell: MetricCell, named: Sequence[Contrast]) -> list[list[Any]]:
    value, missed = cell.value, cell.reached is not None and cell.reached < cell.seeds
    mean, median = (float("nan"), value.mean) if missed else (value.mean, float("nan"))
    start = [mean, value.low, value.high, median, cell.middle, cell.seeds, cell.reached, cell.rank]
    contrasts = (*cell.contrasts, *named)
    if not contrasts:
        return [[*start, *[""] * 12]]
    found = []
    for contrast in contrasts:
        gap = contrast.difference
        found.append([*start, contrast.reference, gap.mean, gap.low, gap.high, contrast.ratio])
        found[-1] += [contrast.p, contrast.p_holm, contrast.tests, contrast.delta]
        found[-1] += [contrast.factor.mean, contrast.factor.low, contrast.factor.high]
    return found


def as_data(found: ComparedRuns) -> dict[str, Any]:
    """Plain containers; numbers that are not known are None, which JSON can say."""
    comparison = found.comparison

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        return None if isinstance(value, float) and not np.isfinite(value) else value

    return {
        "judged_by": asdict(comparison.judged_by),
        "target": found.target,
        "accounting": found.accounting.value,
        "within": asdict(found.within),
        "basis": found.basis,
        "origins": dict(found.origins),
        "notes": notes(found),
        "seeds": list(comparison.seeds),
        "references": list(comparison.references),
        "finished": plain(dict(comparison.finished)),
        "warnings": list(comparison.warnings),
        "methods": {
            method: {metric: plain(asdict(cell)) for metric, cell in cells.items()}
            for method, cells in comparison.cells.items()
        },
        "pairs": {
            metric: [{"method": method, **plain(asdict(found))} for (method, _), found in pairs.items()]
            for metric, pairs in comparison.pairs.items()
        },
    }


def aligned(header: Cells, rows: Sequence[Cells]) -> list[str]:
    """Lines for a terminal, columns under each other."""
    table = [[printable(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in table]


def piped(header: Cells, rows: Sequence[Cells]) -> str:
    """A Markdown table."""
    return "\n".join(
        "| " + " | ".join(markdown_text(cell) for cell in cells) + " |"
        for cells in (header, ["---"] * len(header), *rows)
    )
