"""Salvage of a whole run: the store's tables and journals, then the recordings inside it."""

from __future__ import annotations

from pathlib import Path

from joulefleet.errors import describe
from joulefleet.runstore import SalvageReport, salvage_run
from power.recording import OPENING_FILE, salvage_recording


def salvage(path: Path) -> SalvageReport:
    """Recover everything a killed run had written; see `joulefleet.runstore.salvage_run`.

    A recording that is damaged is left as it is and named in the report: it must not cost the others.
    """
    report = salvage_run(path)
    for opening in sorted(path.rglob(OPENING_FILE)):
        try:
            record = salvage_recording(opening.parent)
        except Exception as error:  # whatever a damaged file makes of its reader
            report.problems[str(opening.parent.relative_to(path))] = describe(error)
            continue
        if record is not None:
            report.tables[str((opening.parent / "recording.json").relative_to(path))] = record.n_samples
    return report
