"""The page of a bench run: what was measured, how well, from what evidence, and what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.report.bench_sections import (
    capped,
    clock_section,
    configuration_section,
    findings_section,
    jobs_section,
    provenance_section,
    run_facts,
    traces_section,
)
from harness.report.federated_rounds import rounds_section
from harness.report.page import Cell, Number, Page, Section
from harness.report.profile_tables import profile_section
from harness.results.stored_run import StoredRun
from harness.results.tables import Row, epoch_table
from harness.rounds.record import FEDERATION
from joulefleet.provenance import Origin


def bench_page(run: StoredRun) -> Page:
    """Put a run on one page. It may be unfinished, or have failed altogether."""
    record = run.record
    epochs = epoch_table(run.captures).rows
    return Page(
        title=f"{record.name}: {record.kind} run {record.run_id}",
        lead=_lead(run, epochs),
        sections=[
            *([rounds_section(run.path)] if record.kind == FEDERATION else []),
            jobs_section(run),
            profile_section(run.device_profiles),
            traces_section(run.captures),
            _epochs(epochs),
            clock_section(run.captures),
            findings_section(run),
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
    return Section("Epochs", tables=[table])


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
