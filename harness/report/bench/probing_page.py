"""The page of a probing run: what stopping after the first epoch saved, beside what was predicted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from emulator import Accounting
from emulator.experiments import PAPER_SAVING
from harness.probing.cost_rows import CostRow, cost_rows
from harness.probing.formula import COUNTED
from harness.probing.savings import MeasuredRound
from harness.probing.validation import MeasuredCell, Validation, validate_run
from harness.report.bench.sections import (
    NOTE,
    capped,
    clock_section,
    configuration_section,
    findings_sections,
    jobs_section,
    provenance_section,
    run_facts,
    traces_section,
)
from harness.report.charts import Chart, DotPlot, Series, StackedBars
from harness.report.looks import BASELINE_GREY, LineStyle
from harness.report.page import Cell, Number, Page, Section, Table
from harness.results.stored_run import StoredRun
from harness.rounds.measured import PHASES, PhaseReading
from joulefleet.errors import DataQualityError
from joulefleet.interval import Interval, Scale
from joulefleet.provenance import Origin
from joulefleet.runstore.notes import read_notes
from power.profile import Quantity

MOST_IN_LEAD = 4
"""Pairs of M and K that the first sentence has room for."""

SOURCES = ("bench", "formula", "emulator", "the paper")
MEANING = (
    "Vanilla: all M candidates train all epochs, then the server keeps K. Probing: all train one epoch and "
    "report, K go on, the others stop. Both rounds of a repetition have the same candidates and data, so the "
    "difference is taken repetition by repetition; the interval is the 95 % one, with the errors of the "
    "instrument and the clocks."
)
WAITING = (
    "Waiting for the server's choice is in no accounting; it is the energy of all candidates together in a "
    "probing round."
)


def probing_page(run: StoredRun) -> Page:
    """Put a probing run on one page, finished or not. All numbers are those of `validate_run`."""
    title = f"{run.record.name}: probing run {run.record.run_id}"
    evidence = [traces_section(run.captures), clock_section(run.captures)]
    sources = [provenance_section(run.captures), configuration_section(run.path)]
    try:
        found = validate_run(run.path)
    except DataQualityError as error:
        unknown = f"It is not known what stopping after the first epoch saves: {error.message}."
        sections = [jobs_section(run), *findings_sections(run), *evidence, *sources]
        return Page(title, "", sections, run_facts(run), [unknown], read_notes(run.path))
    sections = [
        _answer(found),
        _costs(found),
        _parts(found.measured, found.origin),
        _rounds(found),
        *findings_sections(run, list(_notes(found))),
        *evidence,
        *sources,
    ]
    return Page(title, _lead(found), sections, run_facts(run), [_saved(found)], read_notes(run.path))


def _lead(found: Validation) -> str:
    plan = found.plan
    return (
        f"{plan.task} with {plan.backend}, {plan.local_epochs} local epochs, {found.energy} energy, "
        f"{len(found.rounds)} of {found.planned} rounds finished. Honest accounting: the probes of all count."
    )


def _saved(found: Validation) -> str:
    cells = [cell for cell in found.cells if cell.chosen < cell.candidates] or found.cells
    if len(cells) <= MOST_IN_LEAD:
        clauses = "; ".join(_clause(cell, found.origin) for cell in cells)
        saved = clauses.replace("of the time", "of a vanilla round's time", 1)
    else:
        honest = [cell.savings[Accounting.HONEST] for cell in cells]
        saved = (
            f"{_span(saving.time_saved.mean for saving in honest)} % of a vanilla round's time and "
            f"{_span(saving.energy_saved.mean for saving in honest)} % of its energy, by M and K"
        )
    return f"Stopping after the first epoch saved {saved} ({found.origin.value})."


def _span(shares: Iterable[float]) -> str:
    percent = [100 * share for share in shares]
    return f"{min(percent):z.1f} to {max(percent):z.1f}"


def _clause(cell: MeasuredCell, origin: Origin) -> str:
    honest = cell.savings[Accounting.HONEST]
    time, energy = (_said(share, origin) for share in (honest.time_saved, honest.energy_saved))
    went_on = f"{cell.chosen} of {cell.candidates} devices went on"
    return f"{time} of the time and {energy} of the energy where {went_on}"


def _said(share: Quantity, origin: Origin) -> str:
    """A share in words: whether it differs from zero is part of the answer."""
    number = _percent(share, origin)
    if share.half_width_95 is None:
        return f"{number.text} (one repetition, no interval)"
    holds_zero = number.interval.low <= 0 <= number.interval.high
    return f"{number.text} (not distinguishable from 0)" if holds_zero else number.text


def _percent(share: Quantity, origin: Origin) -> Number:
    width = share.half_width_95
    return Number(100 * share.mean, "%", origin, None if width is None else 100 * width, Scale.SAVED)


def _answer(found: Validation) -> Section:
    numbers = [
        (
            f"{what} saved, {_name(cell)}",
            _percent(getattr(cell.savings[Accounting.HONEST], name), found.origin),
        )
        for cell in found.cells
        for what, name in (("Time", "time_saved"), ("Energy", "energy_saved"))
    ]
    figures = [
        _figure(found, "Saved time", "time_saved", PAPER_SAVING.time_saved),
        _figure(found, "Saved energy", "energy_saved", PAPER_SAVING.energy_saved),
    ]
    text = f"{MEANING} These are the numbers of honest accounting. {_predictions(found)}"
    title = "What stopping after the first epoch saved"
    return Section(title, "", numbers, [*_against_m(found), *figures], small_print=text)


def _against_m(found: Validation) -> list[Chart]:
    """Saved time and energy against M, where several were tried; the paper's share, whose M is not stated."""
    counts = sorted({cell.candidates for cell in found.cells})
    if len(counts) < 2:
        return []
    parts = (("Saved time", "time_saved"), ("Saved energy", "energy_saved"))
    return [_over_m(found, counts, title, name, getattr(PAPER_SAVING, name)) for title, name in parts]


def _over_m(found: Validation, counts: Sequence[int], title: str, name: str, of_paper: float) -> Chart:
    series = []
    for chosen in sorted({cell.chosen for cell in found.cells}):
        shares = {
            cell.candidates: _percent(getattr(cell.savings[Accounting.HONEST], name), found.origin).interval
            for cell in found.cells
            if cell.chosen == chosen
        }
        ends = [shares.get(m, Interval(math.nan)) for m in counts]
        mean, low, high = (np.array([getattr(e, end) for e in ends]) for end in ("mean", "low", "high"))
        series.append(Series(f"K = {chosen}, bench", mean, points=True, low=low, high=high))
    paper = np.full(len(counts), 100 * of_paper)
    series.append(Series("the paper, M not stated", paper, style=LineStyle(BASELINE_GREY, (8, 4))))
    x = np.array(counts, np.float64)
    return Chart(
        f"{title} against M, honest", "M: devices that are probed", "%", x, series, found.origin.value
    )


def _predictions(found: Validation) -> str:
    if found.predicted_origin is None:
        return "There is no prediction to compare with; the findings say why."
    return (
        f"The formula and the emulator were given the same rounds and profiles ({found.profiles_from}) "
        f"[{found.predicted_origin.value}]. In words, {PAPER_SAVING.text} [{Origin.LITERATURE.value}]."
    )


def _name(cell: MeasuredCell) -> str:
    return f"M = {cell.candidates}, K = {cell.chosen}"


def _figure(found: Validation, title: str, share: str, of_paper: float) -> DotPlot:
    rows: dict[str, list[Interval | None]] = {}
    for cell in found.cells:
        for row in cost_rows(cell, found.energy):
            value: Interval | None = getattr(row, share)
            if value is not None:
                values = rows.setdefault(f"{_name(cell)}: {_words(row.counted)}", [None] * len(SOURCES))
                values[SOURCES.index(row.source)] = value.times(100)
    rows["the paper, M not stated"] = [None, None, None, Interval(100 * of_paper)]
    return DotPlot(f"{title}, share of the vanilla round", SOURCES, rows, "%", found.origin.value)


def _words(accounting: str) -> str:
    return accounting.replace("_", " ")


def _costs(found: Validation) -> Section:
    headers = ["M / K", "counted", "from", "time", "energy", "time saved", "energy saved", "n", "origin"]
    rows = [_cost_line(found, cell, row) for cell in found.cells for row in cost_rows(cell, found.energy)]
    counted: list[Sequence[Cell]] = [[_words(name), text] for name, text in COUNTED.items()]
    waits: list[Sequence[Cell]] = [
        [_name(cell), Number(q.mean, "J", found.origin, q.half_width_95, Scale.LINEAR)]
        for cell in found.cells
        for q in (cell.probing_wait_j,)
    ]
    return Section(
        "A round both ways",
        tables=[
            Table(headers, rows, "Means over the repetitions with 95 % intervals."),
            Table(["accounting", "what is counted"], counted),
            Table(["round", "waiting for the choice"], waits, WAITING),
        ],
    )


def _cost_line(found: Validation, cell: MeasuredCell, row: CostRow) -> list[Cell]:
    here = row.source == "bench"
    return [
        f"{cell.candidates} / {cell.chosen}",
        _words(row.counted),
        row.source,
        _text(row.time_s, ".3g", "s"),
        _text(row.energy_j, ".3g", "J"),
        *(_text(share, ".1f", "%") for share in _percents(row)),
        str(cell.repetitions) if here else "",
        found.origin if here or found.predicted_origin is None else found.predicted_origin,
    ]


def _percents(row: CostRow) -> list[Interval | None]:
    return [None if s is None else s.times(100) for s in (row.time_saved, row.energy_saved)]


def _text(value: Interval | None, form: str, unit: str) -> str:
    if value is None:
        return ""
    reach = f" [{value.low:z{form}}, {value.high:z{form}}]" if value.known else ""
    return f"{value.mean:z{form}} {unit}{reach}"


def _parts(rounds: Sequence[MeasuredRound], origin: Origin) -> Section:
    """Where a round's energy goes, and what each device does in it."""
    by_kind: dict[str, list[MeasuredRound]] = {}
    for found in sorted(rounds, key=lambda r: (r.record.m, r.record.k or math.inf)):
        by_kind.setdefault(_kind(found), []).append(found)
    bars = {kind: [_mean_j(members, phase) for phase in PHASES] for kind, members in by_kind.items()}
    figure = StackedBars("Energy of a round by part, all devices together", PHASES, bars, "J", origin.value)
    by_role: dict[tuple[str, str], list[dict[str, PhaseReading]]] = {}
    for kind, members in by_kind.items():
        for found in members:
            for part in found.parts:
                went_on = ", went on" if part.device in found.record.chosen else ", stopped"
                role = kind if found.record.k is None else kind + went_on
                by_role.setdefault((part.device, role), []).append(part.readings)
    rows: list[list[Cell]] = [
        [
            device,
            role,
            *(_phase([r[phase] for r in readings]) for phase in PHASES),
            str(len(readings)),
            origin,
        ]
        for (device, role), readings in sorted(by_role.items())
    ]
    caption = "Mean seconds and joules of each part of a device's round."
    return Section(
        "Devices and parts",
        charts=[figure],
        tables=[capped(["device", "round", *PHASES, "n", "origin"], rows, caption)],
    )


def _kind(found: MeasuredRound) -> str:
    record = found.record
    return f"M = {record.m}, " + ("vanilla" if record.k is None else f"K = {record.k}")


def _mean_j(rounds: Sequence[MeasuredRound], phase: str) -> float:
    """Over the rounds; what is less than nothing after idle power is taken off has no length."""
    total_j = sum(part.readings[phase].energy_j for found in rounds for part in found.parts)
    return max(0.0, total_j / len(rounds))


def _phase(readings: Sequence[PhaseReading]) -> str:
    """Mean duration and energy; the energy is a lower bound where some of it is not known."""
    seconds = sum(r.duration_s for r in readings) / len(readings)
    if not seconds:
        return ""
    joules = sum(r.energy_j for r in readings) / len(readings)
    return f"{seconds:.3g} s, {'' if all(r.complete for r in readings) else 'at least '}{joules:.3g} J"


def _rounds(found: Validation) -> Section:
    rows: list[list[Cell]] = [
        [
            str(line.number),
            str(line.repetition),
            "vanilla" if line.k is None else f"K = {line.k}",
            ", ".join(line.candidates),
            ", ".join(line.chosen),
            Number(line.elapsed_s, "s", found.origin).text,
            found.origin,
        ]
        for line in found.rounds
    ]
    headers = ["round", "repetition", "kind", "candidates", "went on", "took, loading included", "origin"]
    return Section("Rounds", tables=[capped(headers, rows)], folded=True)


def _notes(found: Validation) -> Iterator[list[str]]:
    """What the validation has to say, as rows of the findings."""
    for name, why in found.failed.items():
        yield ["error", why, f"round {name}", "1", "round_missing"]
    if found.failed_attempts:
        text = "attempts at rounds that failed, also of rounds that succeeded later"
        yield ["warning", text, "rounds", str(found.failed_attempts), "attempts_failed"]
    for note in (*found.notes, PAPER_SAVING.remark):
        yield ["info", note, "rounds", "1", NOTE]
