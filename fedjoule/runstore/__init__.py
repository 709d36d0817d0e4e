"""Run store: directories that explain themselves, survive a kill, and are never overwritten."""

from fedjoule.runstore.journal import Journal, read_journal
from fedjoule.runstore.run import Run, RunRecord, RunStatus
from fedjoule.runstore.salvage import SalvageReport, salvage_run
from fedjoule.runstore.store import RunStore, RunSummary, find_run
from fedjoule.runstore.table import TableWriter, iter_batches, read_table, table_rows

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
