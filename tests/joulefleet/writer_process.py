"""A process that writes a run until it is killed: rows to a table, lines to a journal.

Prints the number of rows that are safely appended; the parent kills it at any moment.
"""

import sys
from pathlib import Path

import pyarrow as pa

from joulefleet.runstore import RunStore

SCHEMA = pa.schema([("n", pa.int64()), ("square", pa.float64())])

root, rows_per_batch = Path(sys.argv[1]), int(sys.argv[2])
with (
    RunStore(root).create("victim", kind="test") as run,
    run.table("numbers", SCHEMA) as table,
    run.journal("notes") as journal,
):
    print(run.path, flush=True)
    for batch in range(1_000_000):
        n = list(range(batch * rows_per_batch, (batch + 1) * rows_per_batch))
        table.append({"n": n, "square": [float(i) ** 2 for i in n]})
        journal.append({"batch": batch})
        print((batch + 1) * rows_per_batch, flush=True)
