"""The page of a bench run: what was measured, how well, from what evidence, and what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emulator import Accounting
from emulator.runs import KNOWN_COSTS, N_UNKNOWN, read_log
from harness.report.bench.profile_tables import cost_section, profile_answers, profile_section
from harness.report.bench.sections import (
    capped,
    clock_section,
    configuration_section,
    findings_sections,
    jobs_section,
    provenance_section,
    run_facts,
    traces_section,
)
from harness.report.charts import Chart, Series
from harness.report.page import Cell, Number, Page, Section, Table
from harness.results.stored_run import StoredRun
from harness.results.tables import Row, epoch_table
from harness.rounds.record import FEDERATION, FederatedRoundRecord, read_federated_rounds
from joulefleet.provenance import Origin, weakest
from joulefleet.runstore.notes import read_notes


def bench_page(run: StoredRun) -> Page:
    """Put a run on one page. It may be unfinished, or have failed altogether."""
    record = run.record
    federated = record.kind == FEDERATION
    epochs = epoch_table(run.captures).rows
    return Page(
        title=f"{record.name}: {record.kind} run {record.run_id}",
        lead=_lead(run, epochs),
        answers=_round_answers(run.path) if federated else profile_answers(run.device_profiles),
        notes=read_notes(run.path),
        sections=[
            rounds_section(run.path) if federated else cost_section(run.device_profiles),
            *findings_sections(run),
            traces_section(run.captures),
            *([] if federated else [profile_section(run.device_profiles)]),
            jobs_section(run),
            _epochs(epochs),
            clock_section(run.captures),
            provenance_section(run.captures),
            configuration_section(run.path),
        ],
        facts=run_facts(run),
    )


def _lead(run: StoredRun, epochs: Sequence[Row]) -> str:
    counts = Counter(job.state.replace("_", " ") for job in run.job_lines)
    jobs = ", ".join(f"{n} {state}" for state, n in sorted(counts.items())) or "no jobs"
    usable = sum(bool(row["usable"]) for row in epochs)
    return f"Jobs: {jobs}. Epochs: {len(epochs)} recorded, {usable} usable. The run is {run.state}."


def _epochs(rows: Sequence[Row]) -> Section:
    table = capped(
        ["job", "epoch", "duration", "gross", "mean power", "net", "origin", "remarks"],
        [_epoch(row) for row in rows],
        "Gross energy with the 95 % interval of that one window; net is minus idle power.",
    )
    return Section("Epochs", tables=[table], folded=True)


def _epoch(row: Row) -> list[Cell]:
    origin = Origin(row["origin"])
    name = "1 (probe)" if row["epoch"] == 1 else str(row["epoch"])
    remarks = [text for text in ("throttled" if row["throttled"] else "", row["problems"]) if text]

    def number(name: str, unit: str, half_width: float | None = None) -> str:
        return "not known" if row[name] is None else Number(row[name], unit, origin, half_width).text

    return [
        row["job"],
        name if row["round"] == 1 else f"round {row['round']}: {name}",
        number("duration_s", "s"),
        number("energy_j", "J", row["energy_half_width_95_j"]),
        number("mean_power_w", "W"),
        number("net_j", "J"),
        origin,
        "; ".join(remarks),
    ]


TEXT = (
    "Costs are those of the devices alone, from their meters and markers, without waiting for the choice. "
    "Honest accounting counts every device that took part, selected only leaves out the energy of those that "
    "were stopped, free leaves out the probing epoch too."
)
UNKNOWN_TEXT = (
    " Where a device's part failed, or its recording cannot tell, its cost is not known: >= marks what is "
    "known of the others, a lower bound. Charts leave such rounds out."
)


def rounds_section(run: Path) -> Section:
    """Every round that was closed; a run that was cut short has those before."""
    rows = _closed(run)
    if not rows:
        return Section("Rounds", "No round has been closed.")
    records = {record.number: record for record in read_federated_rounds(run)}
    headers = ["round", "went on", "stopped", "failed", "cost unknown", "test accuracy", "loss", "time"]
    headers += [f"energy, {accounting.value.replace('_', ' ')}" for accounting in Accounting]
    shown = [_round_row(row, records.get(row["round"])) for row in rows]
    table = Table([*headers, "origin"], shown, "Who took part in each round; its energy is without waiting.")
    text = TEXT + (UNKNOWN_TEXT if any(row.get(N_UNKNOWN) for row in rows) else "")
    return Section("Rounds", charts=_round_charts(rows), tables=[table], small_print=text)


def _round_answers(run: Path) -> list[str]:
    """What the federation reached, what it took, and what that rests on."""
    rows = _closed(run)
    if not rows:
        return ["No round has been closed: nothing is known yet."]
    known = [row for row in rows if np.isfinite(row["test_accuracy"] or np.nan)]
    origin = weakest(Origin(row["cost_origin"]) for row in rows)
    reached = "not tested" if not known else f"{100 * known[-1]['test_accuracy']:.1f} % test accuracy"
    totals = [
        _total(rows, f"{name}_{Accounting.HONEST.value}", unit)
        for name, unit in (("time_s", "s"), ("energy_j", "J"))
    ]
    took = " and ".join(totals)
    found = f"After {len(rows)} rounds on the bench: {reached}, for {took} ({origin.value})."
    return [f"{found} One run with one seed: no interval."]


def _total(rows: Sequence[Mapping[str, Any]], name: str, unit: str) -> str:
    whole = [row[name] for row in rows if row[name] is not None]
    if len(whole) == len(rows):
        return f"{sum(whole):.3g} {unit}"
    return f"at least {sum(row.get(KNOWN_COSTS[name]) or 0.0 for row in rows):.3g} {unit}"


def _closed(run: Path) -> list[dict[str, Any]]:
    if not any(run.glob("rounds.*")):  # it ended before the table was made
        return []
    rows: list[dict[str, Any]] = read_log(run, "rounds").to_pylist()
    return rows


def _round_row(row: Mapping[str, Any], record: FederatedRoundRecord | None) -> list[Cell]:
    origin = Origin(row["cost_origin"])
    parts = () if record is None else record.parts
    went_on = [part.device for part in parts if part.chosen and not part.failure]
    stopped = [part.device for part in parts if not part.chosen and not part.failure]
    failed = [part.device for part in parts if part.failure]
    return [
        str(row["round"]),
        *(", ".join(names) or "nobody" for names in (went_on, stopped, failed)),
        f"{row[N_UNKNOWN]} of {row['candidates']}" if row.get(N_UNKNOWN) else "",
        _shown(100 * row["test_accuracy"], "%", origin),
        _shown(row["loss"], "", origin),
        _cost(row, f"time_s_{Accounting.HONEST.value}", "s", origin),
        *(_cost(row, f"energy_j_{accounting.value}", "J", origin) for accounting in Accounting),
        origin,
    ]


def _cost(row: Mapping[str, Any], name: str, unit: str, origin: Origin) -> str:
    """A cost of a round; what is known of it where that is not all, and nothing where that is nothing."""
    if row[name] is not None:
        return _shown(row[name], unit, origin)
    known = row.get(KNOWN_COSTS[name])
    return f">= {Number(known, unit, origin).text}" if known else "not known"


def _shown(value: float, unit: str, origin: Origin) -> str:
    return Number(value, unit, origin).text if np.isfinite(value) else "not known"


def _round_charts(rows: list[dict[str, Any]]) -> list[Chart]:
    number = np.array([row["round"] for row in rows], dtype=np.float64)
    origin = weakest(Origin(row["cost_origin"]) for row in rows).value

    def series(label: str, column: str, scale: float = 1.0) -> Series:
        return Series(label, scale * np.array([row[column] for row in rows], dtype=np.float64), points=True)

    accuracy = series("test accuracy (%)", "test_accuracy", 100.0)
    time = series("time (s)", f"time_s_{Accounting.HONEST.value}")
    energy = [
        series(f"{accounting.value.replace('_', ' ')} (J)", f"energy_j_{accounting.value}")
        for accounting in Accounting
    ]
    return [
        Chart("Test accuracy", "round", "test accuracy (%)", number, [accuracy], origin),
        Chart("Time of a round", "round", "time (s)", number, [time], origin),
        Chart("Energy of a round", "round", "energy (J)", number, energy, origin),
    ]
