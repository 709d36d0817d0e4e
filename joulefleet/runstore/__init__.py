"""Run store: directories that explain themselves, survive a kill, and are never overwritten."""

from joulefleet.runstore.journal import Journal, read_journal
from joulefleet.runstore.run import Run, RunRecord, RunStatus
from joulefleet.runstore.salvage import SalvageReport, salvage_run
from joulefleet.runstore.store import RunStore, RunSummary, find_run
from joulefleet.runstore.table import TableWriter, iter_batches, read_table, table_rows

__all__ = [
    "Journal",
    "Run",
    "RunRecord",
    "RunStatus",
    "RunStore",
    "RunSummary",
    "SalvageReport",
    "TableWriter",
    "find_run",
    "iter_batches",
    "read_journal",
    "read_table",
    "salvage_run",
    "table_rows",
]
