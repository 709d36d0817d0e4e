"""A bench run of one recording, as a program: root of the runs, kind of meter, its port, seconds."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from harness.bench.journal import JOURNAL, BenchJournal
from joulefleet.runstore import RunStore
from power import MeterConfig, open_meter, record

JOB = "0001_board_softmax_rep1"


def main(root: Path, kind: str, port: str, seconds: float) -> None:
    """Record, then say what was lost."""
    config = MeterConfig(kind=kind, port=port, voltage_v=4.0, voltage_max_v=4.2, current_limit_a=3.0)
    with RunStore(root).create("live", kind="bench") as run:
        journal = BenchJournal(run.journal(JOURNAL))
        journal.write("planned", planned=[JOB])
        journal.write("stage", job=JOB, attempt=1, stage="round")
        with open_meter(config) as meter:
            done = record(meter, run.subfolder(f"jobs/{JOB}"), config=config, seconds=seconds)
    sys.stdout.write(json.dumps({"samples": done.n_samples, "lost": done.dropped}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]))
