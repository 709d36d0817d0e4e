"""Make a killed run whole again: close what can be closed, cut what is torn, say what was done."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from joulefleet.errors import StorageError
from joulefleet.records import write_record
from joulefleet.runstore.journal import cut_torn_line
from joulefleet.runstore.run import RUN_FILE, RunLock, RunStatus, read_run
from joulefleet.runstore.table import (
    PARQUET_SUFFIX,
    STREAM_SUFFIX,
    is_closed,
    rewrite_stream,
    stays_stream,
    stream_schema,
    stream_to_parquet,
    table_rows,
)


@dataclass(slots=True)
class SalvageReport:
    """What salvage found and did.

    Attributes:
        problems: Folders with something that could not be recovered, and why; it is left as it was.
    """

    path: Path
    status: RunStatus = RunStatus.SALVAGED
    tables: dict[str, int] = field(default_factory=dict)
    torn_journals: dict[str, int] = field(default_factory=dict)
    leftovers_removed: list[str] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """Plain data for ``--json``."""
        return {**asdict(self), "path": str(self.path), "status": self.status.value}


def salvage_run(path: Path) -> SalvageReport:
    """Recover everything a killed run had appended.

    A run that ended by itself is left as it is. The call can be repeated.

    Raises:
        StorageError: A living process is writing the run, or the disk refuses.
    """
    record = read_run(path)
    report = SalvageReport(path, status=record.status)
    with contextlib.closing(RunLock(path)):
        _close_tables(path, report)
        _cut_journals(path, report)
        for leftover in sorted(path.rglob(".*.tmp")):
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink(missing_ok=True)
            report.leftovers_removed.append(str(leftover.relative_to(path)))
        if record.status is RunStatus.RUNNING:
            report.status = RunStatus.SALVAGED
            ended = record.model_copy(update={"status": RunStatus.SALVAGED, "ended_utc": datetime.now(UTC)})
            write_record(path / RUN_FILE, ended, replace=True)
    return report


def _close_tables(path: Path, report: SalvageReport) -> None:
    for stream in sorted(path.rglob(f"*{STREAM_SUFFIX}")):
        parquet = stream.with_suffix(PARQUET_SUFFIX)
        if parquet.exists():
            # Killed between publishing the Parquet file and removing the stream: the former is whole.
            stream.unlink()
            report.leftovers_removed.append(str(stream.relative_to(path)))
            continue
        try:
            schema = stream_schema(stream)
            if schema is not None and stays_stream(schema):
                if not is_closed(stream):
                    rewrite_stream(stream, stream, schema)
                report.tables[str(stream.relative_to(path))] = table_rows(stream)
            else:
                report.tables[str(parquet.relative_to(path))] = stream_to_parquet(stream, parquet)
        except StorageError as error:
            raise type(error)(f"salvage stopped at {stream}: {error.message}", hint=error.hint) from error


def _cut_journals(path: Path, report: SalvageReport) -> None:
    for journal in sorted(path.rglob("*.jsonl")):
        cut = cut_torn_line(journal)
        if cut:
            report.torn_journals[str(journal.relative_to(path))] = cut
