"""Stored emulations: checked when they are read back, and how to go on with one that is not whole.

What is cut, lost or not a number never becomes a table.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emulator.round.outcome import Accounting, Fate
from emulator.runs.opening import INDEX, read_index, resuming
from emulator.runs.result import EmulationRecord, Result, run_of
from emulator.runs.tables import KNOWN_COSTS, N_UNKNOWN
from joulefleet.errors import DataQualityError
from joulefleet.runstore import RunStatus
from joulefleet.runstore.run import read_run

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

COSTS = (*(f"{what}_{a.value}" for what in ("time_s", "energy_j") for a in Accounting), "energy_j")
PARTS = tuple(f"{part}_j" for part in ("download", "probe", "wait", "train", "upload"))
KNOWN_HONEST = KNOWN_COSTS[f"time_s_{Accounting.HONEST.value}"]
ANEW = "play it anew"


@dataclass(frozen=True, slots=True, eq=False)
class FinishedRun:
    """An emulation that has come to its end, and whose tables are whole.

    Attributes:
        method: What it is called in a table.
        rounds: One row per round, round 0 (profiling) included.
        result: The emulation.
        variant: Of the experiment that it belongs to.
    """

    method: str
    rounds: pd.DataFrame
    result: Result
    variant: str = ""

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.result.path

    @property
    def record(self) -> EmulationRecord:
        """What it is."""
        return self.result.record

    @property
    def seed(self) -> int:
        """Of its record."""
        return self.record.seed

    @property
    def clients(self) -> pd.DataFrame:
        """One row per participant and round; read when asked for, since it is large."""
        return self.result.clients


def checked_rounds(result: Result) -> pd.DataFrame:
    """The rounds of a finished emulation in their order, once its tables were found whole.

    A run that ended early was tested in the end, even if its last round was not: that accuracy stands there.
    Whatever the task is judged by is called accuracy from here on; `EmulationRecord.metric` says what it is.

    Raises:
        DataQualityError: A row is missing, or a cost or accuracy is no number.
        StorageError: A table has other columns.
    """
    rounds, clients = result.rounds, result.clients
    named = result.record.metric.name
    rounds = rounds.rename(
        columns={named: "accuracy", f"{named}_gain": "accuracy_gain", f"test_{named}": "test_accuracy"}
    )
    if "test_accuracy" not in rounds:
        raise DataQualityError(f"{result.path}/rounds.parquet: has no column 'test_{named}'")
    rounds = rounds.sort_values("round").reset_index(drop=True)
    record = result.record
    _check_count(result.path, record, rounds)
    if record.ended_early and record.tested is not None and np.isnan(rounds["test_accuracy"].iloc[-1]):
        rounds.loc[rounds.index[-1], "test_accuracy"] = record.tested
    _check_numbers(result.path, record, rounds)
    _check_clients(result.path, rounds, clients, record.scenario.fleet.devices)
    return rounds


def check_rounds(path: Path, record: EmulationRecord, rounds: pd.DataFrame) -> None:
    """Whether rounds that were published without their participants are all there, and numbers.

    Raises:
        DataQualityError: They are not.
    """
    if "test_accuracy" not in rounds:
        raise DataQualityError(f"{path}/rounds.parquet: has no column 'test_accuracy'")
    _check_count(path, record, rounds)
    _check_numbers(path, record, rounds)


def _check_count(path: Path, record: EmulationRecord, rounds: pd.DataFrame) -> None:
    played = rounds["round"].to_numpy()
    played = played[played > 0]
    count = record.rounds or 0
    if len(played) != count:
        raise DataQualityError(f"{path}: {len(played)} rounds are stored, {count} were played")
    lost = np.setdiff1d(np.arange(1, count + 1), played)
    if len(lost):
        raise DataQualityError(f"{path}: rounds.parquet has no round {lost[0]}")


def _check_numbers(path: Path, record: EmulationRecord, rounds: pd.DataFrame) -> None:
    """Costs are numbers in every row; accuracies in every round that was tested."""
    unknown = unknown_costs(rounds)
    wrong = [name for name in COSTS if not (np.isfinite(rounds[name]) | unknown).all()]
    wrong += [name for name in KNOWN_COSTS.values() if name in rounds and not np.isfinite(rounds[name]).all()]
    honest_s = rounds[KNOWN_HONEST if KNOWN_HONEST in rounds else "time_s_honest"].to_numpy(float)
    took_s = (rounds["duration_ns"] - rounds["idle_ns"]).to_numpy() * 1e-9
    if not (np.isclose(took_s, honest_s, rtol=1e-9, atol=2e-9) | ~np.isfinite(honest_s)).all():
        raise DataQualityError(
            f"{path}: duration_ns and time_s_honest of rounds.parquet contradict each other"
        )
    number = rounds["round"].to_numpy()
    every = record.scenario.protocol.test_every
    tested = (number > 0) & (number % every == 0 if every else False)
    tested |= number == record.rounds
    accuracy = rounds["test_accuracy"].to_numpy(float)
    # Where nothing could be tested, not even in the end, there are costs alone.
    if record.tested is not None and not np.isfinite(accuracy[tested]).all():
        wrong.append("test_accuracy")
    if wrong:
        raise DataQualityError(
            f"{path}: {', '.join(wrong)} of rounds.parquet hold values that are not numbers"
        )


def _check_clients(path: Path, rounds: pd.DataFrame, clients: pd.DataFrame, devices: int) -> None:
    """What the participants spent is what the rounds cost; that also finds rows that are missing."""
    if (clients["device"] >= devices).any():
        raise DataQualityError(f"{path}: clients.parquet has devices beyond the {devices} of the fleet")
    if not clients["round"].isin(rounds["round"]).all():
        raise DataQualityError(f"{path}: clients.parquet has rounds that rounds.parquet has not")
    if (rounds["eligible"] > devices).any():
        raise DataQualityError(
            f"{path}: rounds.parquet has more eligible devices than the {devices} there are"
        )
    _check_counts(path, rounds, clients)
    unknown = unknown_costs(rounds)
    complete = ~np.isin(clients["round"].to_numpy(), rounds["round"].to_numpy()[unknown])
    parts_j = clients.loc[complete, list(PARTS)].to_numpy(float)
    if not np.isfinite(parts_j).all():
        raise DataQualityError(f"{path}: energies of clients.parquet hold values that are not numbers")
    spent_j, cost_j = float(parts_j.sum()), float(rounds["energy_j"].to_numpy(float)[~unknown].sum())
    if not math.isclose(spent_j, cost_j, rel_tol=1e-6, abs_tol=1e-9):
        raise DataQualityError(
            f"{path}: participants spent {spent_j:.6g} J in all, their rounds cost {cost_j:.6g} J"
        )


def _check_counts(path: Path, rounds: pd.DataFrame, clients: pd.DataFrame) -> None:
    """Who took part in a round, was chosen, and what became of them: both tables say it."""
    if clients.duplicated(["round", "device"]).any():
        raise DataQualityError(f"{path}: clients.parquet has a device twice in one round")
    fates = {f"n_{fate.value}": clients["fate"] == fate.value for fate in Fate}
    for name, which in {"candidates": clients["device"] >= 0, "chosen": clients["chosen"], **fates}.items():
        counted = clients.loc[which, "round"].value_counts().reindex(rounds["round"], fill_value=0)
        if (counted.to_numpy() != rounds[name].to_numpy()).any():
            raise DataQualityError(f"{path}: {name} of rounds.parquet are not those of clients.parquet")


def unknown_costs(rounds: pd.DataFrame) -> NDArray[np.bool_]:
    """Rounds in which a participant's cost is not known: on a bench, where its part failed."""
    if N_UNKNOWN not in rounds:
        return np.zeros(len(rounds), np.bool_)
    return np.asarray(rounds[N_UNKNOWN].to_numpy() > 0)


def how_to_go_on(folder: Path) -> str:
    """A command that plays what is missing of the run to which a folder belongs, and what it does."""
    path = run_of(folder)
    if path is None:
        return ANEW
    record = read_run(path)
    whole = record.status is RunStatus.COMPLETE
    if record.command[1:3] == ("experiment", "run"):
        command = _ours(word for word in record.command[1:] if word != "--resume")
        if whole:
            return f"`{command} --reuse {path}` takes over the rest and plays these anew"
        return f"`{command} --resume` continues it"
    if (path / INDEX).is_file() and not whole:
        return f"`{resuming(path, read_index(path))}` continues it"
    if record.kind == "federation" and not whole:
        return f"`joulefleet bench federate SCENARIO --resume {path}`, with its scenario, continues it"
    # The demo plays its experiment itself; a run made from Python has no command of ours.
    return f"`{_ours(record.command[1:])}` plays it anew" if record.command[1:2] == ("demo",) else ANEW


def _ours(words: Iterable[str]) -> str:
    """A command of ours: the record of another lab's run must not suggest another program."""
    return shlex.join(["joulefleet", *words])
