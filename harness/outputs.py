"""What is written beside a run: its page first, then files for other tools.

All of it follows from what is stored, so it is written anew each time, and after a resume it tells of the
whole run. Nothing here is read back. This module is above `report` and `export` because it needs both.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.evidence.capture import open_capture
from harness.report.page import REPORT_FILE
from harness.results.stored_run import StoredRun
from harness.results.tables import JobCapture, epoch_table
from harness.rounds.record import FEDERATION, PROBING
from harness.rounds.session import RunOutputs
from joulefleet.errors import ConfigError
from joulefleet.files import write_atomic
from joulefleet.runstore.notes import read_notes
from joulefleet.runstore.run import read_run

if TYPE_CHECKING:
    from emulator.experiments import ExperimentResults
    from harness.report.page import Page

JUNIT_FILE = "junit.xml"
RESULTS_FILE = "results.parquet"
EPOCHS_FILE = "epochs.parquet"
"""In a job's folder, for other tools."""

TABLE_FILE = "table.md"


def write_outputs(path: Path, *, partial: bool = False) -> tuple[Path, ...]:
    """Write the page of a run, and what goes with it for this kind of run, into its folder.

    Call it when the run is closed; before, it is shown as running.

    Args:
        path: The run's folder.
        partial: Of an unfinished experiment: go on without runs that are missing; every output says so.

    Returns:
        The files, the page first.

    Raises:
        ConfigError: This kind of run has no page.
    """
    kind = read_run(path).kind
    if kind in ("bench", FEDERATION, PROBING):
        return _write_bench(path)
    if kind == "experiment":
        write_experiment(path, partial=partial)
        return (path / REPORT_FILE,)
    if kind == "emulation":
        return (page_of(path).write(path / REPORT_FILE, replace=True),)
    if (path / REPORT_FILE).is_file():  # the demo's page was made with the demo
        return (path / REPORT_FILE,)
    raise _no_page(path, kind)


def page_of(path: Path, *, partial: bool = False) -> Page:
    """The page of a run as data, nothing written.

    Args:
        path: The run's folder.
        partial: As for `write_outputs`.

    Raises:
        ConfigError: This kind of run has none.
    """
    run = read_run(path)
    if run.kind == PROBING:
        from harness.report.bench.probing_page import probing_page

        return probing_page(StoredRun(path))
    if run.kind in ("bench", FEDERATION):
        from harness.report.bench.page import bench_page

        return bench_page(StoredRun(path))
    if run.kind == "experiment":
        from emulator.experiments import load_experiment
        from harness.report.emulations.experiment_page import experiment_page

        return experiment_page(load_experiment(path, partial=partial), run, read_notes(path))
    if run.kind == "emulation":
        from harness.report.emulations.emulation_page import emulation_page

        return emulation_page(path)
    raise _no_page(path, run.kind)


def _no_page(path: Path, kind: str) -> ConfigError:
    return ConfigError(
        f"{path}: a run of kind {kind!r} has no page",
        hint="runs of bench, probing, emulate, experiment and the demo have one",
    )


def _write_bench(path: Path) -> tuple[Path, ...]:
    """Page, test results, all epochs; and the epochs of a job that was killed before it wrote its own."""
    from harness.export.junit import write_junit

    stored = StoredRun(path)
    for job in stored.captures:
        if not (job.capture.folder / EPOCHS_FILE).exists():
            _write_epochs(job)
    write_junit(stored, path / JUNIT_FILE, replace=True)
    write_atomic(path / RESULTS_FILE, epoch_table(stored.captures).parquet(), replace=True)
    page_of(path).write(path / REPORT_FILE, replace=True)
    return tuple(path / name for name in (REPORT_FILE, JUNIT_FILE, RESULTS_FILE))


def write_epochs(folder: Path) -> None:
    """Write the epochs of one finished job, in the columns of ``joulefleet.open_run(...).epochs()``."""
    _write_epochs(JobCapture(folder.name, open_capture(folder)))


def _write_epochs(job: JobCapture) -> None:
    write_atomic(job.capture.folder / EPOCHS_FILE, epoch_table([job]).parquet())


OUTPUTS = RunOutputs(of_capture=write_epochs, of_run=write_outputs)
"""What commands and the demo pass to a session on the bench."""


def write_experiment(path: Path, *, partial: bool = False) -> ExperimentResults:
    """Write ``report.html``, ``table.md``, ``table.csv`` and ``curves.csv`` into an experiment's folder.

    Args:
        path: The run's folder.
        partial: Go on without runs that are missing; every output says so.
    """
    from emulator.experiments import as_csv, load_experiment
    from emulator.experiments.render import as_markdown, curves_csv
    from harness.report.emulations.experiment_page import experiment_page

    results = load_experiment(path, partial=partial)
    experiment_page(results, read_run(path), read_notes(path)).write(path / REPORT_FILE, replace=True)
    texts = {
        TABLE_FILE: as_markdown(results),
        "table.csv": as_csv(results),
        "curves.csv": curves_csv(results),
    }
    for name, text in texts.items():
        write_atomic(path / name, text.encode(), replace=True)
    return results
