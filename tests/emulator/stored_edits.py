"""Changes to stored emulations, as damage or another world would make them."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from emulator.runs.result import EMULATION_FILE


def edit_record(folder: Path, **changes: object) -> None:
    path = folder / EMULATION_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_facts(folder: Path, **changes: object) -> None:
    facts = json.loads((folder / EMULATION_FILE).read_text())["facts"]
    edit_record(folder, facts={**facts, **changes})


def edit_table(folder: Path, name: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    path = folder / f"{name}.parquet"
    pq.write_table(pa.Table.from_pandas(change(pq.read_table(path).to_pandas()), preserve_index=False), path)


def edit_run(path: Path, **changes: object) -> None:
    """The record of a run folder."""
    record = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**record, **changes}))
