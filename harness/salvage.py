"""Salvage of a whole run: the store's tables and journals, then the recordings inside it."""

from __future__ import annotations

from pathlib import Path

from fedjoule.runstore import SalvageReport, salvage_run


def salvage(path: Path) -> SalvageReport:
    """Recover everything a killed run had written; see `fedjoule.runstore.salvage_run`."""
    from power.recording import OPENING_FILE, salvage_recording

    report = salvage_run(path)
    for opening in sorted(path.rglob(OPENING_FILE)):
        record = salvage_recording(opening.parent)
        if record is not None:
            report.tables[str((opening.parent / "recording.json").relative_to(path))] = record.n_samples
    return report
