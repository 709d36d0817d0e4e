"""What stands beside an experiment's runs: its page, its tables, and the data of its figures."""

from __future__ import annotations

from pathlib import Path

from emulator.experiments.numbers import as_csv
from emulator.experiments.render import as_markdown, curves_csv
from emulator.experiments.results import ExperimentResults, load_experiment
from harness.report.experiment_page import experiment_page
from harness.report.page import REPORT_FILE
from joulefleet.records import write_atomic
from joulefleet.runstore.run import read_run

TABLE_FILE = "table.md"


def write_experiment(path: Path, *, partial: bool = False) -> ExperimentResults:
    """Write ``report.html``, ``table.md``, ``table.csv`` and ``curves.csv`` into an experiment's folder.

    They follow from the stored runs and are written anew each time; the raw logs stay where they are.

    Args:
        path: The run folder.
        partial: Go on without runs that are missing; every output says so.
    """
    results = load_experiment(path, partial=partial)
    texts = {
        TABLE_FILE: as_markdown(results),
        "table.csv": as_csv(results),
        "curves.csv": curves_csv(results),
    }
    experiment_page(results, read_run(path)).write(path / REPORT_FILE, replace=True)
    for name, text in texts.items():
        write_atomic(path / name, text.encode(), replace=True)
    return results
