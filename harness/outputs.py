"""What stands beside the evidence at the end of a bench run: page, test results, table of epochs."""

from __future__ import annotations

from pathlib import Path

from fedjoule.records import write_atomic
from harness.export.junit import write_junit
from harness.report.bench_page import bench_page
from harness.report.page import REPORT_FILE
from harness.run_tables import epoch_table
from harness.stored_run import StoredRun

JUNIT_FILE = "junit.xml"
RESULTS_FILE = "results.parquet"


def write_outputs(run: Path) -> tuple[Path, ...]:
    """Write ``report.html``, ``junit.xml`` and ``results.parquet`` of a bench run into its folder.

    They follow from what is stored, so they are written anew each time: after a run was resumed they tell of
    all of it. Call it when the run is closed; before, it is shown as running.
    """
    stored = StoredRun(run)
    write_junit(stored, run / JUNIT_FILE, replace=True)
    write_atomic(run / RESULTS_FILE, _parquet(stored), replace=True)
    bench_page(stored).write(run / REPORT_FILE, replace=True)
    return tuple(run / name for name in (REPORT_FILE, JUNIT_FILE, RESULTS_FILE))


def _parquet(run: StoredRun) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(epoch_table(run.captures).arrow(), sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data
