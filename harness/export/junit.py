"""A bench run as JUnit XML, which build servers show: one test case per job, failures with their evidence."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree as ET

from harness.bench.job.failures import FAILED, AttemptRecord
from harness.bench.journal import JOURNAL, read_steps
from harness.results.gate import GateCheck, Outcome
from harness.results.overview import JobLine
from harness.results.stored_run import StoredRun
from harness.results.tables import JobCapture
from joulefleet.files import write_atomic
from joulefleet.printable import printable

SKIPPED = {
    "pending": "not run yet",
    "waiting": "waiting for another attempt",
    "running": "still running",
    "killed": "the run was killed during this job",
    "not_needed": "not needed: the interval of its cell is narrow enough",
}


def write_junit(run: StoredRun, out: Path, *, replace: bool = False) -> None:
    """Store the results of a run's jobs as JUnit XML."""
    _write(junit(run), out, replace=replace)


def write_gate_junit(checks: Sequence[GateCheck], max_increase: float, out: Path) -> None:
    """Store what `harness.results.gate` found: a test case per quantity, skipped where it cannot be told."""
    root = ET.Element("testsuites", {"name": "joulefleet"})
    limit = f"+{max_increase * 100:.3g} %"
    suite = ET.SubElement(root, "testsuite", {"name": f"limit {limit}"})
    for check in checks:
        case = ET.SubElement(
            suite, "testcase", {"classname": _text(check.label), "name": _text(check.place), "time": "0.000"}
        )
        said = _text(f"{_change(check)}; {limit} is allowed")
        if check.outcome is Outcome.FAILED:
            ET.SubElement(case, "failure", {"type": "Increase", "message": said})
        elif check.outcome is Outcome.NOT_MEASURED:
            ET.SubElement(case, "error", {"type": "NotMeasured", "message": _text(check.reason)})
        elif check.outcome is Outcome.CANNOT_TELL:
            ET.SubElement(case, "skipped", {"message": _text(f"cannot tell: {said}; {check.reason}")})
        else:
            ET.SubElement(case, "system-out").text = said
    _count(root, suite, len(checks), 0.0)
    _write(root, out, replace=True)


def _change(check: GateCheck) -> str:
    return "" if check.change is None else check.change.percent_text()


def _write(root: ET.Element, out: Path, *, replace: bool) -> None:
    ET.indent(root)
    data = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    write_atomic(out, data + b"\n", replace=replace)


def _count(root: ET.Element, suite: ET.Element, tests: int, seconds: float) -> None:
    for element in (root, suite):
        element.set("tests", str(tests))
        element.set("failures", str(len(suite.findall("testcase/failure"))))
        element.set("errors", str(len(suite.findall("testcase/error"))))
        element.set("skipped", str(len(suite.findall("testcase/skipped"))))
        element.set("time", f"{seconds:.3f}")


def junit(run: StoredRun) -> ET.Element:
    """The results as an XML tree, in the form that Jenkins' schema describes."""
    root = ET.Element("testsuites", {"name": "joulefleet"})
    suite = ET.SubElement(root, "testsuite", {"name": _text(f"{run.record.name} {run.record.run_id}")})
    suite.set("timestamp", run.record.created_utc.replace(microsecond=0, tzinfo=None).isoformat())
    _add_properties(suite, run)
    captures = {job.job: job for job in run.captures}
    seconds = _job_seconds(run.path)
    for job in run.job_lines:
        case = ET.SubElement(suite, "testcase", {"classname": _text(_device(job)), "name": _text(job.name)})
        case.set("time", f"{seconds.get(job.name, 0.0):.3f}")
        attempts = [attempt for attempt in run.failed_attempts if attempt.job == job.name]
        _add_outcome(case, job, _problem(run, job, captures.get(job.name)), attempts)
        if job.name in captures:
            ET.SubElement(case, "system-out").text = _text(_result(captures[job.name], attempts))
    _count(root, suite, len(run.job_lines), sum(seconds.values()))
    return root


def _add_properties(suite: ET.Element, run: StoredRun) -> None:
    properties = ET.SubElement(suite, "properties")
    facts = {"state": run.state, "origin": run.origin.value if run.origin else "", **run.record.host}
    for name, value in facts.items():
        ET.SubElement(properties, "property", {"name": _text(name), "value": _text(value)})


def _device(job: JobLine) -> str:
    """The second part of a job's name; what is no job of a plan has none."""
    return job.name.split("_")[1] if "_" in job.name else "bench"


def _problem(run: StoredRun, job: JobLine, capture: JobCapture | None) -> str:
    """Why a job that finished proves nothing any more."""
    if job.state not in ("finished", "lost"):
        return ""
    if capture is None:
        return run.problems.get(job.name, "its capture is missing")
    return f"changed since the capture was made: {', '.join(capture.changed)}" if capture.changed else ""


def _add_outcome(case: ET.Element, job: JobLine, problem: str, attempts: Sequence[AttemptRecord]) -> None:
    if job.state == "failed":
        kind = attempts[-1].error_type if attempts else "failed"
        failure = ET.SubElement(case, "failure", {"type": _text(kind), "message": _text(job.error)})
        failure.text = _text(_evidence(attempts))
    elif problem:
        ET.SubElement(case, "failure", {"type": "EvidenceLost", "message": _text(problem)})
    elif job.state in SKIPPED:
        ET.SubElement(case, "skipped", {"message": SKIPPED[job.state]})


def _evidence(attempts: Sequence[AttemptRecord]) -> str:
    """Why each attempt failed and where what is left of it lies; the traceback of the last one."""
    lines = []
    for attempt in attempts:
        lines.append(f"attempt {attempt.attempt}, {attempt.stage}: {attempt.error_type}: {attempt.message}")
        if attempt.hint:
            lines.append(f"  try: {attempt.hint}")
        lines.append(f"  kept in {FAILED}/{attempt.job}-attempt{attempt.attempt}")
    if attempts and attempts[-1].trace:
        lines += ["", attempts[-1].trace]
    return "\n".join(lines)


def _result(job: JobCapture, attempts: Sequence[AttemptRecord]) -> str:
    """What a finished job measured, and what went wrong on the way."""
    lines = []
    for epoch in job.cut.epochs:
        energy = epoch.evidence.energy
        known = "energy not known" if energy.energy_j is None else f"{energy.energy_j:.6g} J"
        lines.append(f"epoch {epoch.epoch}: {energy.duration_s:.6g} s, {known} [{job.origin.value}]")
    record = job.capture.record
    lines.append(
        f"clock: {record.clock.method}, standard uncertainty {record.clock.sync_uncertainty_s:.3g} s"
    )
    lines += [
        f"{finding.severity.value}: {finding.code}: {finding.message}"
        for finding in (*job.capture.recording.record.findings, *record.findings)
    ]
    return "\n".join(lines + ([_evidence(attempts)] if attempts else []))


def _job_seconds(run: Path) -> dict[str, float]:
    """How long each job took, attempts that failed included, from the journal."""
    seconds: dict[str, float] = {}
    last: dict[str, datetime] = {}
    for record in read_steps(run / f"{JOURNAL}.jsonl"):
        name = record.get("job")
        if name is None:
            continue
        now = datetime.fromisoformat(record["utc"])
        if name in last:
            took_s = max(0.0, (now - last[name]).total_seconds())  # the clock may have been set back
            seconds[name] = seconds.get(name, 0.0) + took_s
        if record["event"] == "stage":
            last[name] = now
        else:
            last.pop(name, None)  # between two attempts nothing runs
    return seconds


def _text(text: str) -> str:
    """What is printable is also what XML 1.0 (section 2.2) can hold, escaped or not."""
    return printable(text, keep="\n\t")
