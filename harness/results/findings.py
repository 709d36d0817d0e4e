"""What a reader of a run's numbers must know, from everywhere it is noted, in one table."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from harness.bench.job.failures import AttemptRecord
from harness.results.tables import JobCapture, Row, RunTable
from power import DeviceProfile, Finding, Severity

FINDINGS = {"job": str, "source": str, "severity": str, "code": str, "count": int, "message": str}
SEVERITIES = [Severity.ERROR.value, Severity.WARNING.value, Severity.INFO.value]
"""The most severe first."""


def finding_table(
    captures: Sequence[JobCapture],
    attempts: Sequence[AttemptRecord],
    finished: Container[str],
    profiles: Sequence[DeviceProfile],
    problems: Mapping[str, str],
) -> RunTable:
    """All findings, the most severe first.

    Args:
        captures: Of the run.
        attempts: That failed.
        finished: Names of the jobs that another attempt finished.
        profiles: Built from the captures.
        problems: Why something could not be used, by where.
    """
    rows = [row for job in captures for row in _of_capture(job)]
    rows += [*_of_attempts(attempts, finished), *_of_profiles(profiles)]
    rows += [_row(where, "run", "not_usable", Severity.ERROR, why) for where, why in problems.items()]
    return RunTable("findings", FINDINGS, sorted(rows, key=lambda row: SEVERITIES.index(row["severity"])))


def _row(job: str, source: str, code: str, severity: Severity, message: str, count: int = 1) -> Row:
    return {
        "job": job,
        "source": source,
        "severity": severity.value,
        "code": code,
        "count": count,
        "message": message,
    }


def _of_capture(job: JobCapture) -> Iterator[Row]:
    if job.changed:
        message = f"changed since the capture was made: {', '.join(job.changed)}"
        yield _row(job.job, "capture", "files_changed", Severity.ERROR, message, len(job.changed))
    for source, findings in (
        ("recording", job.capture.recording.record.findings),
        ("capture", job.capture.record.findings),
    ):
        yield from (_stored(job.job, source, finding) for finding in findings)
    for epoch in job.cut.epochs:
        what = f"round {epoch.round}, epoch {epoch.epoch}"
        for problem in epoch.evidence.energy.problems:
            yield _row(job.job, "epoch", "epoch_unusable", Severity.WARNING, f"{what}: {problem}")
        if epoch.throttled:
            message = f"{what}: the device was slowed down; it is in no average"
            yield _row(job.job, "epoch", "throttled", Severity.WARNING, message)


def _stored(job: str, source: str, finding: Finding) -> Row:
    return _row(job, source, finding.code, finding.severity, finding.message, finding.count)


def _of_attempts(attempts: Sequence[AttemptRecord], finished: Container[str]) -> Iterator[Row]:
    for attempt in attempts:
        severity = Severity.WARNING if attempt.job in finished else Severity.ERROR
        message = f"attempt {attempt.attempt}, {attempt.stage}: {attempt.error_type}: {attempt.message}"
        yield _row(attempt.job, "attempt", "attempt_failed", severity, message)


def _of_profiles(profiles: Sequence[DeviceProfile]) -> Iterator[Row]:
    for profile in profiles:
        for note in profile.notes:
            yield _row("", f"profile {profile.label}", "profile_note", Severity.INFO, note)
