"""A run as curves: what experiment trackers show, one numbered point after the other, with what was run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator import Result, load_result
from emulator.runs import METRIC_PREFIX, emulations_below, read_log
from harness.results.stored_run import StoredRun
from harness.results.tables import JobCapture, epoch_table
from joulefleet.errors import DataQualityError
from joulefleet.provenance import Origin
from joulefleet.runstore import RunRecord

ROUNDS, EPOCHS = "rounds", "epochs"
_EPOCH_VALUES = ("duration_s", "energy_j", "energy_half_width_95_j", "mean_power_w", "net_j")


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a curve.

    Attributes:
        step: Number of the round or epoch.
        after_s: When it was over: seconds of the emulation's virtual clock, or after the recording began.
        value: In the unit that the curve's name ends with.
    """

    step: int
    after_s: float
    value: float


@dataclass(frozen=True, slots=True)
class Curves:
    """One emulation, or one job of the bench.

    Attributes:
        name: Of its folder in the run.
        what: `ROUNDS` or `EPOCHS`: what the points are.
        settings: What decided it.
        origin: Where its numbers come from, in a few words by topic.
        finished: Whether it came to its end.
        curves: By name.
    """

    name: str
    what: str
    settings: Mapping[str, str]
    origin: Mapping[str, str]
    finished: bool
    curves: Mapping[str, tuple[Point, ...]]

    @property
    def basis(self) -> str:
        """The origin as one line."""
        return ", ".join(f"{topic.replace('_', ' ')}: {text}" for topic, text in self.origin.items())

    @property
    def points(self) -> int:
        """Of all curves together."""
        return sum(map(len, self.curves.values()))

    @property
    def end_s(self) -> float:
        """When the last point was over."""
        return max((points[-1].after_s for points in self.curves.values()), default=0.0)


@dataclass(frozen=True, slots=True)
class RunCurves:
    """All of a run."""

    record: RunRecord
    state: str
    parts: tuple[Curves, ...]


def run_curves(run: StoredRun) -> RunCurves:
    """The curves of every emulation and every finished bench job in a run.

    Raises:
        DataQualityError: There is neither.
    """
    parts = (*_emulations(run), *(_job(job) for job in run.captures))
    if not parts:
        raise DataQualityError(
            f"{run.path}: a run of kind {run.record.kind!r} without rounds or epochs, so there is no curve",
            hint="runs of `joulefleet emulate`, `joulefleet experiment` and `joulefleet bench` have some",
        )
    return RunCurves(run.record, run.state, parts)


def _emulations(run: StoredRun) -> Iterator[Curves]:
    for folder in emulations_below(run.path):
        result = load_result(folder)
        record = result.record
        inside = folder.relative_to(run.path).as_posix()
        settings = {
            "method": record.method,
            "seed": record.seed,
            **record.scenario.model_dump(mode="json", exclude={"seeds", "schema_version", "sweep"}),
        }
        yield Curves(
            name=f"{record.selector}_s{record.seed}".replace("/", "_") if inside == "." else inside,
            what=ROUNDS,
            settings=_flat(settings),
            origin={
                "origin": str(record.facts.get("played", Origin.EMULATED.value)),
                "cost_origin": str(record.facts["cost_origin"]),
                "energy": str(record.facts["energy"]),
                "training": str(record.facts["trainer"]),
            },
            finished=record.rounds is not None,
            curves=_round_curves(result),
        )


def _round_curves(result: Result) -> dict[str, tuple[Point, ...]]:
    """Every number of the rounds; counts and nanoseconds of the clock become the points' step and time."""
    rows = read_log(result.path, "rounds").to_pylist()
    clock = ("start_ns", "duration_ns", "idle_ns")
    for row in rows:
        row["duration_s"] = row["duration_ns"] * 1e-9
    names = [name for name in (rows[0] if rows else {}) if name not in ("round", *clock)]
    curves = {
        name.replace(METRIC_PREFIX, "selector/"): tuple(
            Point(row["round"], (row["start_ns"] + row["duration_ns"]) * 1e-9, float(row[name]))
            for row in rows
            if _is_number(row[name])
        )
        for name in names
    }
    return {name: points for name, points in curves.items() if points}


def _job(job: JobCapture) -> Curves:
    rows = epoch_table([job]).rows
    cell = job.cell()
    curves = {
        name: tuple(
            Point(number, row["start_s"] + row["duration_s"], float(row[name]))
            for number, row in enumerate(rows, start=1)
            if _is_number(row[name])
        )
        for name in _EPOCH_VALUES
    }
    return Curves(
        name=job.job,
        what=EPOCHS,
        settings=_flat({name: cell[name] for name in cell if name not in ("job", "origin")}),
        origin={"origin": job.origin.value},
        finished=True,
        curves={name: points for name, points in curves.items() if points},
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """``{"protocol": {"k": 5}}`` as ``{"protocol.k": "5"}``; what is not set is left out."""
    found: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            found[prefix + name] = json.dumps(value)
        elif value is not None:
            found[prefix + name] = str(value)
    return found
