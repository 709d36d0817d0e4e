"""What an emulation leaves behind: ``emulation.json`` and its tables."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from device_agents.workloads import ACCURACY, Metric
from emulator.runs.replay.devices import DEVICES
from emulator.runs.tables import read_log
from emulator.scenario.model import Scenario
from emulator.scenario.settings import setting
from emulator.scenario.sweep import method_label
from emulator.selectors.neural.policy import POLICY_SUFFIX
from joulefleet.errors import DataQualityError
from joulefleet.records import StoredRecord, read_record
from joulefleet.runstore.run import RUN_FILE
from joulefleet.runstore.table import PARQUET_SUFFIX

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
        swept: Keys of the scenario in which the variants of its run differ.
        test_metric: Of the last model, where the task is judged by another metric; the facts name it.
    """

    LATER: ClassVar[frozenset[str]] = frozenset({"swept", "test_metric"})

    scenario: Scenario
    seed: int
    facts: dict[str, Any]
    rounds: int | None = None
    test_accuracy: float | None = None
    ended_early: str = ""
    swept: tuple[str, ...] | None = None
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

    @property
    def options(self) -> dict[str, Any]:
        """What the selector was given, be it the scenario's or an object of one's own.

        Raises:
            DataQualityError: The record holds something else there.
        """
        section = self.scenario.selector
        # Runs from before options were noted: the scenario's are another selector's if an object played.
        own = section.options if self.selector == section.name else {}
        options = self.facts.get("selector_options", own)
        if not isinstance(options, dict):
            raise DataQualityError(f"its record has no options of a selector, but {options!r:.40}")
        return options

    @property
    def settings(self) -> dict[str, Any]:
        """Keys in which the variants of its run differ, and their values here."""
        return {key: setting(self.scenario, key) for key in self.swept or ()}

    @property
    def method(self) -> str:
        """What it is called in tables: the selector, its options, and the settings that vary."""
        options = dict(self.options)
        if str(options.get("policy", "")).endswith(POLICY_SUFFIX):  # what is in it counts, not where it lies
            digest = self.facts.get("policy_sha256")
            options["policy"] = Path(str(options["policy"])).name + (f":{str(digest)[:8]}" if digest else "")
        return method_label(self.selector, options, self.settings)


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
    def has_clients(self) -> bool:
        """Whether `clients` is there."""
        return True

    @property
    def devices(self) -> pd.DataFrame:
        """One row per device: phone, profile, data, whom it replays; in a very large fleet of participants.

        Raises:
            DataQualityError: An earlier version ran it and wrote none.
        """
        if not (self.path / (DEVICES + PARQUET_SUFFIX)).is_file():
            raise DataQualityError(
                f"{self.path}: has no {DEVICES}.parquet: an earlier version ran it",
                hint="play it anew to have one; its other tables are whole",
            )
        return self._frame(DEVICES)

    @property
    def overhead(self) -> pd.DataFrame:
        """The server's own time per round, which depends on the machine."""
        return self._frame("overhead")

    @property
    def run_path(self) -> Path:
        """The run folder, which ``report``, ``compare``, ``export`` and ``--resume`` take."""
        return run_of(self.path) or self.path

    def _frame(self, name: str) -> pd.DataFrame:
        frame: pd.DataFrame = read_log(self.path, name).to_pandas()
        return frame


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """Several emulations as tables. Every row says which it is of.

    The columns ``method``, ``selector`` and ``seed`` come first, then one for each option that a selector was
    given (``selector.options.mode``) and for each setting that was swept (``protocol.k``); empty where an
    emulation has none. Tables are read when they are asked for.

    Attributes:
        results: One per emulation, in the order of the plan.
        left_out: What is not in here, and why.
    """

    results: tuple[Result, ...]
    left_out: tuple[str, ...] = ()

    @property
    def emulations(self) -> pd.DataFrame:
        """One row per emulation: what it is, how far it came, where it is."""
        import pandas as pd

        rows = [
            {
                "rounds": one.record.rounds,
                "test_accuracy": one.record.test_accuracy,
                "ended_early": one.record.ended_early,
                "path": str(one.path),
            }
            for one in self.results
        ]
        return self._labelled([pd.DataFrame([row]) for row in rows])

    @property
    def rounds(self) -> pd.DataFrame:
        """One row per emulation and round."""
        return self._labelled([one.rounds for one in self.results])

    @property
    def clients(self) -> pd.DataFrame:
        """One row per emulation, round and participant."""
        return self._labelled([one.clients for one in self.results])

    @property
    def devices(self) -> pd.DataFrame:
        """One row per emulation and device, to be merged with ``clients``."""
        return self._labelled([one.devices for one in self.results])

    def _labelled(self, frames: list[pd.DataFrame]) -> pd.DataFrame:
        import pandas as pd

        labels = [_labels(one.record) for one in self.results]
        names = list(dict.fromkeys(name for one in labels for name in one))
        parts = []
        for frame, mine in zip(frames, labels, strict=True):
            # As objects: an option may be a number here and a word there, and nothing is not NaN.
            columns = {name: pd.Series([mine.get(name)] * len(frame), dtype=object) for name in names}
            parts.append(pd.concat([pd.DataFrame(columns), frame], axis=1))
        joined = pd.concat(parts, ignore_index=True)
        return joined.astype({name: joined[name].infer_objects().dtype for name in names})


def _labels(record: EmulationRecord) -> dict[str, Any]:
    """What tells the rows of one emulation from those of another."""
    options = {f"selector.options.{name}": value for name, value in sorted(record.options.items())}
    found = {"method": record.method, "selector": record.selector, "seed": record.seed}
    # What is no plain value (a list, a table) would be no key of a grouping.
    plain = {
        name: value if isinstance(value, str | int | float | None) else json.dumps(value)
        for name, value in {**options, **record.settings}.items()
    }
    return found | plain


@dataclass(frozen=True, slots=True, eq=False)
class BatchResult(Results):
    """What a run of several selectors and seeds found.

    Attributes:
        path: The run folder, which ``open_run``, ``compare``, ``report`` and ``--resume`` take.
    """

    path: Path = Path()


def tested_as(metric: Metric, value: float) -> dict[str, float | None]:
    """What the last model reached, as fields of a record; ``None`` if that is not known."""
    return {"test_accuracy" if metric == ACCURACY else "test_metric": value if math.isfinite(value) else None}


def run_of(folder: Path) -> Path | None:
    """The run folder to which the folder of an emulation belongs."""
    return next((one for one in (folder, *folder.parents) if (one / RUN_FILE).is_file()), None)


def load_result(path: Path) -> Result:
    """A stored emulation."""
    return Result(path, read_record(path / EMULATION_FILE, EmulationRecord))


def emulations_below(path: Path) -> list[Path]:
    """Folders of the emulations below one; not the half of a copy that was killed, whose name is hidden."""
    found = (record.parent for record in path.rglob(EMULATION_FILE))
    return sorted(one for one in found if not any(p[0] == "." for p in one.relative_to(path).parts))


def is_finished(folder: Path, rounds: int = 0) -> bool:
    """Whether an emulation has come to its end; with ``rounds`` to that of at least so many planned ones."""
    if not (folder / EMULATION_FILE).is_file():
        return False
    record = load_result(folder).record
    return record.rounds is not None and record.scenario.protocol.rounds >= rounds
