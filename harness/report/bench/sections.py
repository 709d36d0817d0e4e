"""Sections that the page of every run on the bench has: jobs, power traces, clock, findings, evidence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from harness.bench.matrix import REACHED_BY
from harness.evidence.clock_fit import BurstSeen
from harness.inventory import load_inventory
from harness.report.bench.charts import MAX_JOBS, clock_folds, job_folds, overlay_of
from harness.report.page import Cell, Fold, Section, Table, text_of
from harness.results.findings import SEVERITIES
from harness.results.stored_run import StoredRun
from harness.results.tables import JobCapture
from joulefleet.errors import JoulefleetError

MAX_ROWS = 2_000
"""Of one table on the page; exports have all."""

CONFIG_FILES = ("plan.toml", "probing.toml", "scenario.toml", "federate.toml")
"""Shown as they are: none of them says how a device is reached."""


def run_facts(run: StoredRun) -> dict[str, str]:
    """How a run came about."""
    record = run.record
    return {
        "state": run.state,
        "created": f"{record.created_utc:%Y-%m-%d %H:%M:%S} UTC",
        "ended": f"{record.ended_utc:%Y-%m-%d %H:%M:%S} UTC" if record.ended_utc else "not yet",
        "error": record.error or "none",
        "command": " ".join(record.command),
        "fingerprint": record.fingerprint or "none",
        **record.host,
    }


def capped(headers: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str = "") -> Table:
    """A table of at most `MAX_ROWS` rows, which says so."""
    if len(rows) > MAX_ROWS:
        more = f"The first {MAX_ROWS:,} of {len(rows):,} rows; `joulefleet export` writes all."
        caption = f"{caption} {more}".strip()
    return Table(headers, rows[:MAX_ROWS], caption)


def jobs_section(run: StoredRun) -> Section:
    """What became of every job."""
    origins = {job.job: job.origin for job in run.captures}
    rows = [
        [
            job.name,
            job.state.replace("_", " "),
            origins.get(job.name, ""),
            str(job.attempt),
            job.stage,
            job.error or run.problems.get(job.name, ""),
        ]
        for job in run.job_lines
    ]
    table = capped(["job", "state", "origin", "attempts", "stage", "error"], rows)
    # All went well: who wants to see that in a list may unfold it.
    well = all(job.state in ("finished", "not_needed") and job.attempt <= 1 for job in run.job_lines)
    return Section("Jobs", tables=[table], folded=well and bool(rows))


def traces_section(jobs: Sequence[JobCapture]) -> Section:
    """Power and telemetry of each job, to be unfolded."""
    text = "A band is a phase between two markers of the device; its name is shown where there is room."
    if not jobs:
        text = "No job has finished."
    if len(jobs) > MAX_JOBS:
        text += f" The first {MAX_JOBS} of {len(jobs)} jobs; `joulefleet export --format perfetto` has all."
    folds = job_folds(jobs)
    both = overlay_of(folds, jobs)
    more = [] if both is None else [Fold(both.title, "aligned by a marker", [both])]
    return Section("Power by job", text, folds=[*more, *folds])


def clock_section(jobs: Sequence[JobCapture]) -> Section:
    """How well the devices' clocks are known."""
    text = (
        "Where a device's markers lie on the recording's clock. The residual is the spread of the "
        "observations around the fit; the standard uncertainty is part of every energy's interval."
    )
    headers = [
        *("job", "origin", "method", "offset", "skew"),
        *("regulator", "residual", "standard uncertainty", "exchanges"),
    ]
    tables = [capped(headers, [_clock_row(job) for job in jobs])]
    bursts = [_burst_row(job, burst) for job in jobs for burst in job.capture.record.bursts]
    if bursts:
        headers = [
            *("job", "pattern", "correlation", "over the next best", "right edges", "step"),
            *("from the exchanges", "residual", "verdict"),
        ]
        tables.append(capped(headers, bursts))
    return Section("Clock", text, tables=tables, folds=clock_folds(jobs), folded=True)


def _clock_row(job: JobCapture) -> list[Cell]:
    clock, pings = job.capture.record.clock, job.capture.record.pings
    exchanges = "none"
    if pings:
        shortest_ms = min(p.received_ns - p.sent_ns for p in pings) * 1e-6
        exchanges = f"{len(pings)}, shortest {shortest_ms:.3g} ms"
    return [
        job.job,
        job.origin,
        clock.method,
        f"{clock.offset_ns * 1e-9:.6f} s",
        f"{clock.skew_ppm:.2f} ppm",
        "not seen" if clock.tau_s is None else f"{clock.tau_s * 1e3:.3g} ms",
        f"{clock.residual_s * 1e3:.3g} ms",
        f"{clock.sync_uncertainty_s * 1e3:.3g} ms",
        exchanges,
    ]


def _burst_row(job: JobCapture, burst: BurstSeen) -> list[Cell]:
    def shown(value: float | None, unit: str = "", scale: float = 1.0) -> str:
        return "" if value is None else f"{value * scale:.3g}{unit}"

    return [
        job.job,
        f"{burst.when} the work",
        shown(burst.correlation),
        shown(burst.peak_to_sidelobe),
        "" if burst.edges is None else f"{burst.right_edges} of {burst.edges}",
        shown(burst.step_w, " W"),
        shown(burst.from_pings_s, " ms", 1e3),
        shown(burst.residual_s, " ms", 1e3),
        f"refused: {burst.refused}" if burst.refused else "passed",
    ]


def findings_sections(run: StoredRun, notes: Sequence[Sequence[str]] = ()) -> list[Section]:
    """What a reader of the numbers must know, each kind once; where there are many, one by one below.

    ``notes`` are further rows; the most severe come first.
    """
    found = [
        [row["severity"], row["message"], row["job"] or row["source"], str(row["count"]), row["code"]]
        for row in run.finding_table().rows
    ]
    rows = sorted([*notes, *found], key=lambda row: SEVERITIES.index(row[0]))
    if not rows:
        return [Section("Findings", "Nothing to report.")]
    kinds: dict[tuple[str, str], list[Sequence[str]]] = {}
    for row in rows:
        # Notes say something else each time.
        kinds.setdefault((row[0], row[4] if row[4] != NOTE else row[1]), []).append(row)
    headers = ["severity", "what it means", "where", "count", "finding"]
    short = Section("Findings", tables=[capped(headers, [_together(found) for found in kinds.values()])])
    if len(kinds) == len(rows):
        return [short]
    return [short, Section("Findings, one by one", tables=[capped(headers, rows)], folded=True)]


NOTE = "note"


def _together(rows: Sequence[Sequence[str]]) -> list[Cell]:
    """Findings of one kind in a row, with the words of the first."""
    severity, message, where, _, code = rows[0]
    if len(rows) == 1:
        return list(rows[0])
    places = len({row[2] for row in rows})
    total = sum(int(row[3]) for row in rows)
    found_in = f"{places} places" if places > 1 else where
    return [severity, f"{message} (of {where}; others alike)", found_in, str(total), code]


def provenance_section(jobs: Sequence[JobCapture]) -> Section:
    """The captures that the numbers rest on, by hash."""
    text = (
        "Every number above was computed from these captures. A capture hashes its recording, markers and "
        "telemetry; one whose files changed since proves nothing, and its numbers say imported."
    )
    headers = [
        "capture",
        "origin",
        "instrument",
        "samples",
        "lost",
        "calibration, or accuracy assumed",
        "files, sha256",
    ]
    return Section("Provenance", text, tables=[capped(headers, [_source(job) for job in jobs])], folded=True)


def _source(job: JobCapture) -> list[Cell]:
    record = job.capture.recording.record
    info = record.info
    files = f"changed: {', '.join(job.changed)}" if job.changed else "as recorded"
    return [
        job.capture.record.capture_id,
        job.origin,
        " ".join(part for part in (info.kind, info.serial, info.firmware) if part),
        f"{record.n_samples:,} at {info.rate_hz:g} Hz",
        "cannot tell" if record.dropped is None else f"{record.dropped:,}",
        job.capture.recording.info.accuracy.source,
        f"{files}, {job.capture.record.sha256()[:12]}",
    ]


def configuration_section(run: Path) -> Section:
    """Files as written; of the inventory all but how devices are reached, because pages are passed on."""
    config = run / "config"
    written = [config / name for name in CONFIG_FILES if (config / name).is_file()]
    files = [(path.name, text_of(path)) for path in written]
    inventory = config / "devices.toml"
    if inventory.is_file():
        files.append(("devices.toml, without how devices are reached", _devices(inventory)))
    text = "" if files else "None is stored with the run."
    return Section("Configuration", text, files=files, folded=True)


def _devices(path: Path) -> str:
    try:
        inventory = load_inventory(path)
    except JoulefleetError as error:
        return error.message
    devices = {
        name: device.model_dump(mode="json", exclude_defaults=True, exclude=REACHED_BY)
        for name, device in inventory.devices.items()
    }
    return json.dumps(devices, indent=2, ensure_ascii=False)
