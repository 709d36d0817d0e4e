"""Emulations as their rounds come: how good each method is, when, and for how many joules."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.experiments import ExperimentPlan
from emulator.runs import EMULATION_FILE, BatchIndex, EmulationRecord, emulations_below, read_log
from harness.report.charts import plain_numbers
from harness.report.looks import method_looks
from joulefleet.errors import JoulefleetError
from joulefleet.records import read_record
from joulefleet.runstore.store import summarise
from joulefleet.runstore.table import numbers, table_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST = 2_000
PLANS: dict[str, type[BatchIndex | ExperimentPlan]] = {
    "index.json": BatchIndex,
    "experiment.json": ExperimentPlan,
}
COLUMNS = ("round", "start_ns", "time_s_honest", "energy_j_honest", "accuracy", "eligible")


class Emulations:
    """The curves of runs; a table that did not change is not read again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: dict[Path, tuple[tuple[int, int], dict[str, Any]]] = {}
        self._plans: dict[tuple[Path, int], dict[Path, int]] = {}

    def run(self, path: Path) -> dict[str, Any]:
        """All emulations below a run, with the share of rounds that were played."""
        found, problems = [], []
        for folder in emulations_below(path)[:MOST]:
            try:
                found.append({**self._curve(folder), "folder": folder})
            except (JoulefleetError, OSError) as error:
                problems.append(f"{folder.relative_to(path)}: {error}")
        looks = method_looks(one["method"] for one in found)
        for one in found:
            one.update(color=looks[one["method"]].color, dash=looks[one["method"]].dash)
        # Those that have not begun count too; one that was over early has nothing left to play.
        rounds = {**self._planned(path), **{one.pop("folder"): one["planned"] for one in found}}
        played, planned = sum(one["played"] for one in found), sum(rounds.values())
        return {
            "state": summarise(path).state,
            "emulations": found,
            "count": len(rounds),
            "problems": problems,
            "share": played / planned if planned else None,
        }

    def _planned(self, path: Path) -> dict[Path, int]:
        """Rounds by the folder of every emulation that the run is to have."""
        for name, kind in PLANS.items():
            if (path / name).is_file():
                key = path / name, (path / name).stat().st_mtime_ns
                if key not in self._plans:
                    plan: Any = read_record(path / name, kind)
                    rounds = {
                        path / one.folder: plan.scenario_of(one).protocol.rounds for one in plan.planned
                    }
                    self._plans[key] = rounds
                return self._plans[key]
        return {}

    def _curve(self, folder: Path) -> dict[str, Any]:
        table = table_path(folder, "rounds")
        facts, record = table.stat(), folder / EMULATION_FILE
        key = facts.st_size, max(facts.st_mtime_ns, record.stat().st_mtime_ns)
        with self._lock:
            known = self._read.get(folder)
        if known is not None and known[0] == key:
            return known[1]
        curve = _curve(folder)
        with self._lock:
            self._read[folder] = key, curve
        return curve


def _curve(folder: Path) -> dict[str, Any]:
    record = read_record(folder / EMULATION_FILE, EmulationRecord)
    rounds = read_log(folder, "rounds")
    values = {name: _numbers(rounds, name) for name in COLUMNS}
    return {
        "method": record.method,
        "seed": record.seed,
        "played": len(rounds),
        "planned": len(rounds) if record.rounds is not None else record.scenario.protocol.rounds,
        "day": plain_numbers(values["start_ns"] * 1e-9 / 86_400),
        "time_s": plain_numbers(np.cumsum(values["time_s_honest"])),
        "energy_j": plain_numbers(np.cumsum(values["energy_j_honest"])),
        "accuracy": plain_numbers(values["accuracy"]),
        "eligible": plain_numbers(values["eligible"]),
    }


def _numbers(table: Any, name: str) -> NDArray[np.float64]:
    if name not in table.column_names:
        return np.full(len(table), np.nan)
    column = table[name]
    return (
        numbers(column.cast("float64"))
        if not column.null_count
        else np.array([np.nan if value is None else float(value) for value in column.to_pylist()])
    )
