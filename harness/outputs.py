"""What stands beside the evidence: epochs of each job, and page, test results and all epochs of the run."""

from __future__ import annotations

from pathlib import Path

from harness.evidence.capture import open_capture
from harness.export.junit import write_junit
from harness.report.bench_page import bench_page
from harness.report.page import REPORT_FILE
from harness.results.stored_run import StoredRun
from harness.results.tables import JobCapture, epoch_table
from joulefleet.records import write_atomic

JUNIT_FILE = "junit.xml"
RESULTS_FILE = "results.parquet"
EPOCHS_FILE = "epochs.parquet"
"""In a job's folder. It follows from the capture and is for other tools: nothing here reads it back."""


def write_outputs(run: Path) -> tuple[Path, ...]:
    """Write ``report.html``, ``junit.xml`` and ``results.parquet`` of a bench run into its folder.

    They follow from what is stored, so they are written anew each time: after a run was resumed they tell of
    all of it. Call it when the run is closed; before, it is shown as running. Jobs that were killed before
    they could write their ``epochs.parquet`` get it, too; the others are not touched.
    """
    stored = StoredRun(run)
    for job in stored.captures:
        if not (job.capture.folder / EPOCHS_FILE).exists():
            _write_epochs(job)
    write_junit(stored, run / JUNIT_FILE, replace=True)
    write_atomic(run / RESULTS_FILE, epoch_table(stored.captures).parquet(), replace=True)
    bench_page(stored).write(run / REPORT_FILE, replace=True)
    return tuple(run / name for name in (REPORT_FILE, JUNIT_FILE, RESULTS_FILE))


def write_epochs(folder: Path) -> None:
    """Write the epochs of one finished job, in the columns of ``harness.open_run(...).epochs()``."""
    _write_epochs(JobCapture(folder.name, open_capture(folder)))


def _write_epochs(job: JobCapture) -> None:
    write_atomic(job.capture.folder / EPOCHS_FILE, epoch_table([job]).parquet())
