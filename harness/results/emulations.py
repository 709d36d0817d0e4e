"""Rounds, participants and devices of a run's emulations: three tables, with method and seed in each row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.runs import EMULATION_FILE, EmulationRecord, emulations_below, read_log
from joulefleet.records import read_record

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

TABLES = ("rounds", "clients", "devices")


@dataclass(frozen=True, slots=True)
class JoinedTable:
    """One table of all emulations of a run, read one emulation at a time.

    Attributes:
        name: As in each of them.
        schema: Columns of all of them; what only some selectors tell is empty for the others.
        rows: In all.
        run: Folder of the run.
        folders: Of its emulations.
    """

    name: str
    schema: pa.Schema
    rows: int
    run: Path
    folders: tuple[Path, ...]

    def parts(self) -> Iterator[pa.Table]:
        """Its rows, one emulation after the other."""
        import pyarrow as pa

        for folder in self.folders:
            part = _labelled(self.run, folder, self.name)
            missing = [field for field in self.schema if field.name not in part.column_names]
            for field in missing:
                part = part.append_column(field, pa.nulls(len(part), field.type))
            yield part.select(self.schema.names)

    def frame(self) -> pd.DataFrame:
        """All of it as a pandas data frame."""
        import pyarrow as pa

        frame: pd.DataFrame = pa.concat_tables(self.parts()).to_pandas()
        return frame


def emulation_tables(run: Path) -> tuple[JoinedTable, ...]:
    """Rounds, participants and devices of a run's emulations, or of a federation; nothing if it has none."""
    import pyarrow as pa

    begun = emulations_below(run)
    found = []
    for name in TABLES:
        folders = tuple(folder for folder in begun if any(folder.glob(f"{name}.*")))
        if not folders:
            continue  # cut short before the first round was closed
        parts = [(part.schema, len(part)) for part in (_labelled(run, folder, name) for folder in folders)]
        schema = pa.unify_schemas([schema.remove_metadata() for schema, _ in parts])
        found.append(JoinedTable(name, schema, sum(rows for _, rows in parts), run, folders))
    return tuple(found)


def _labelled(run: Path, folder: Path, name: str) -> pa.Table:
    """One table of one emulation, behind ``emulation``, ``method``, ``selector`` and ``seed``."""
    import pyarrow as pa

    record = read_record(folder / EMULATION_FILE, EmulationRecord)
    table = read_log(folder, name)
    inside = folder.relative_to(run).as_posix()
    labels = {"emulation": inside, "method": record.method, "selector": record.selector}
    columns = [pa.array([label] * len(table), pa.string()) for label in labels.values()]
    columns.append(pa.array([record.seed] * len(table), pa.int64()))
    names = [*labels, "seed", *table.column_names]
    return pa.table([*columns, *table.columns], names=names)
