"""The rounds of a federated run on bench devices: who went on, what the model learnt, what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from emulator import Accounting
from harness.report.charts import Chart, Series
from harness.report.page import Cell, Number, Section, Table
from harness.rounds.record import FederatedRoundRecord, read_federated_rounds
from joulefleet.errors import StorageError
from joulefleet.provenance import Origin, weakest
from joulefleet.runstore import read_table

TEXT = (
    "Costs are those of the devices alone, from their meters and markers. Honest accounting counts every "
    "device that took part, selected only leaves out the energy of those that were stopped, free leaves out "
    "the probing epoch too."
)


def rounds_section(run: Path) -> Section:
    """Every round that was closed; a run that was cut short has those before."""
    rows = _closed(run)
    if not rows:
        return Section("Rounds", "No round has been closed.")
    records = {record.number: record for record in read_federated_rounds(run)}
    headers = ["round", "went on", "stopped", "failed", "test accuracy", "loss", "time"]
    headers += [f"energy, {accounting.value.replace('_', ' ')}" for accounting in Accounting]
    table = Table([*headers, "origin"], [_row(row, records.get(row["round"])) for row in rows])
    return Section("Rounds", TEXT, charts=_charts(rows), tables=[table])


def _closed(run: Path) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = read_table(run, "rounds").to_pylist()
    except StorageError:  # it ended before the table was made
        return []
    return rows


def _row(row: Mapping[str, Any], record: FederatedRoundRecord | None) -> list[Cell]:
    origin = Origin(row["cost_origin"])
    parts = () if record is None else record.parts
    went_on = [part.device for part in parts if part.chosen and not part.failure]
    stopped = [part.device for part in parts if not part.chosen and not part.failure]
    failed = [part.device for part in parts if part.failure]
    return [
        str(row["round"]),
        *(", ".join(names) or "nobody" for names in (went_on, stopped, failed)),
        _shown(100 * row["test_accuracy"], "%", origin),
        _shown(row["loss"], "", origin),
        _shown(row[f"time_s_{Accounting.HONEST.value}"], "s", origin),
        *(_shown(row[f"energy_j_{accounting.value}"], "J", origin) for accounting in Accounting),
        origin,
    ]


def _shown(value: float, unit: str, origin: Origin) -> str:
    return Number(value, unit, origin).text if np.isfinite(value) else "not known"


def _charts(rows: list[dict[str, Any]]) -> list[Chart]:
    number = np.array([row["round"] for row in rows], dtype=np.float64)
    origin = weakest(Origin(row["cost_origin"]) for row in rows).value

    def series(label: str, column: str, scale: float = 1.0) -> Series:
        return Series(label, scale * np.array([row[column] for row in rows], dtype=np.float64), points=True)

    accuracy = series("test accuracy (%)", "test_accuracy", 100.0)
    time = series("time (s)", f"time_s_{Accounting.HONEST.value}")
    energy = [
        series(f"{accounting.value.replace('_', ' ')} (J)", f"energy_j_{accounting.value}")
        for accounting in Accounting
    ]
    return [
        Chart("Test accuracy", "round", "test accuracy (%)", number, [accuracy], origin),
        Chart("Time of a round", "round", "time (s)", number, [time], origin),
        Chart("Energy of a round", "round", "energy (J)", number, energy, origin),
    ]
