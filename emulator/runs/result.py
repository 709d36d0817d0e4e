"""What an emulation leaves behind: ``emulation.json`` and its tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from device_agents.workloads import ACCURACY, Metric
from emulator.scenario.model import Scenario
from joulefleet.errors import DataQualityError
from joulefleet.records import StoredRecord, read_record
from joulefleet.runstore import read_table
from joulefleet.runstore.run import RUN_FILE

if TYPE_CHECKING:
    import pandas as pd

EMULATION_FILE = "emulation.json"
METRIC_FLAGS = ("higher_is_better", "share", "relative")


class EmulationRecord(StoredRecord):
    """``emulation.json``: one selector with one seed.

    Attributes:
        scenario: Everything that decides it, resolved.
        facts: What it came to: budgets, fleet, traces, data, partition, trainer.
        rounds: How many were played; ``None`` while it runs.
        test_accuracy: Of the last model.
        ended_early: Why not all rounds were played, if so.
        test_metric: Of the last model, where the task is judged by another metric; the facts name it.
    """

    LATER: ClassVar[frozenset[str]] = frozenset({"test_metric"})

    scenario: Scenario
    seed: int
    facts: dict[str, Any]
    rounds: int | None = None
    test_accuracy: float | None = None
    ended_early: str = ""
    test_metric: float | None = None

    @property
    def metric(self) -> Metric:
        """What its models are judged by."""
        named = self.facts.get("metric")
        if named is None:
            return ACCURACY
        try:
            name, flags = str(named["name"]), {flag: bool(named.get(flag)) for flag in METRIC_FLAGS}
            if not name.isidentifier():
                raise ValueError(name)
            return Metric(name, **flags)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise DataQualityError(f"its record names no metric, but {named!r:.40}") from error

    @property
    def tested(self) -> float | None:
        """What the last model reached, by the metric of the task."""
        return self.test_accuracy if self.metric == ACCURACY else self.test_metric

    @property
    def selector(self) -> str:
        """Who chose."""
        return str(self.facts["selector"])


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What a run found.

    Attributes:
        path: Where it is stored.
        record: What it was.
    """

    path: Path
    record: EmulationRecord

    @property
    def rounds(self) -> pd.DataFrame:
        """One row per round."""
        return self._frame("rounds")

    @property
    def clients(self) -> pd.DataFrame:
        """One row per participant and round."""
        return self._frame("clients")

    @property
    def overhead(self) -> pd.DataFrame:
        """The server's own time per round, which depends on the machine."""
        return self._frame("overhead")

    @property
    def run_path(self) -> Path:
        """The run folder, which ``report``, ``compare``, ``export`` and ``--resume`` take."""
        return run_of(self.path) or self.path

    def _frame(self, name: str) -> pd.DataFrame:
        frame: pd.DataFrame = read_table(self.path, name).to_pandas()
        return frame


@dataclass(frozen=True, slots=True, eq=False)
class BatchResult:
    """What a run of several selectors and seeds found.

    Attributes:
        path: The run folder, which ``open_run``, ``compare``, ``report`` and ``--resume`` take.
        results: One per selector and seed, in the order in which they ran.
    """

    path: Path
    results: tuple[Result, ...]

    @property
    def rounds(self) -> pd.DataFrame:
        """One row per selector, seed and round."""
        return self._joined("rounds")

    @property
    def clients(self) -> pd.DataFrame:
        """One row per selector, seed, round and participant."""
        return self._joined("clients")

    def _joined(self, name: str) -> pd.DataFrame:
        import pandas as pd

        frames = []
        for one in self.results:
            frame: pd.DataFrame = getattr(one, name)
            frame.insert(0, "selector", one.record.selector)
            frame.insert(1, "seed", one.record.seed)
            frames.append(frame)
        return pd.concat(frames, ignore_index=True)


def tested_as(metric: Metric, value: float) -> dict[str, float | None]:
    """What the last model reached, as fields of a record; ``None`` if that is not known."""
    return {"test_accuracy" if metric == ACCURACY else "test_metric": value if math.isfinite(value) else None}


def run_of(folder: Path) -> Path | None:
    """The run folder to which the folder of an emulation belongs."""
    return next((one for one in (folder, *folder.parents) if (one / RUN_FILE).is_file()), None)


def load_result(path: Path) -> Result:
    """A stored emulation."""
    return Result(path, read_record(path / EMULATION_FILE, EmulationRecord))


def is_finished(folder: Path) -> bool:
    """Whether an emulation has come to its end."""
    return (folder / EMULATION_FILE).is_file() and load_result(folder).record.rounds is not None
