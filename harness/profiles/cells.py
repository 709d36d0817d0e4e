"""What belongs together: captures of one device, workload, data set and backend; within, one background."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from device_agents.workloads import TASKS
from harness.evidence.capture import Background, Capture
from harness.profiles.epochs import CutCapture
from joulefleet.errors import DataQualityError

ALIKE = (
    "workload",
    "dataset",
    "backend",
    "samples",
    "batch_size",
    "threads",
    "synthetic_data",
    "local_epochs",
    "warmup_epochs",
)
"""Fields of a capture's record in which those of one profile must not differ."""


@dataclass(frozen=True, slots=True, order=True)
class CellKey:
    """What a profile is about."""

    device: str
    workload: str
    dataset: str
    backend: str

    @classmethod
    def of(cls, capture: Capture) -> CellKey:
        """The key of a capture."""
        record = capture.record
        return cls(record.device.name, record.workload, record.dataset, record.backend)

    @property
    def model(self) -> str:
        """What follows the data set in a task's name; the workload itself if it is no task."""
        task = TASKS.get(self.workload)
        return self.workload if task is None else task.name.removeprefix(f"{task.data_set}-")


@dataclass(frozen=True, slots=True)
class Level:
    """All captures of a cell beside one background."""

    background: Background
    captures: tuple[CutCapture, ...]


def by_cell(captures: Iterable[Capture]) -> dict[CellKey, list[Capture]]:
    """Captures sorted into cells."""
    cells: dict[CellKey, list[Capture]] = {}
    for capture in captures:
        cells.setdefault(CellKey.of(capture), []).append(capture)
    return dict(sorted(cells.items()))


def by_background(captures: Sequence[Capture], sessions: Sequence[int]) -> list[Level]:
    """Captures of a cell sorted by background, none first; each with the number of its session.

    Raises:
        DataQualityError: There is no capture without background.
    """
    groups: dict[tuple[str, int, float], list[CutCapture]] = {}
    for capture, session in zip(captures, sessions, strict=True):
        background = capture.record.background
        # Not by their total: two workers at half a core slow training down otherwise than one at a whole one.
        key = (background.kind, background.cores, background.cpu_share)
        groups.setdefault(key, []).append(CutCapture(capture, session))
    levels = [Level(found[0].record.background, tuple(found)) for found in groups.values()]
    levels.sort(key=lambda level: (level.background.kind != "none", level.background.load))
    if not levels or levels[0].background.kind != "none":
        raise DataQualityError(
            f"{captures[0].record.device.name}: no capture without background load",
            hint="add a background level of nothing to the plan: the others are relative to it",
        )
    return levels


def require_alike(captures: Sequence[Capture]) -> None:
    """Refuse captures that must not be averaged.

    Raises:
        DataQualityError: They differ in what a profile is about, or in the work that was measured.
    """
    if not captures:
        raise DataQualityError("no capture to build a profile from")
    first = captures[0]
    for other in captures[1:]:
        for name in ALIKE:
            here, there = getattr(first.record, name), getattr(other.record, name)
            if here != there and None not in (here, there):
                raise DataQualityError(
                    f"captures {first.record.capture_id} and {other.record.capture_id} differ in {name}: "
                    f"{here!r} and {there!r}",
                    hint="build one profile from each",
                )
        if first.record.device.name != other.record.device.name:
            raise DataQualityError(
                f"captures of two devices: {first.record.device.name} and {other.record.device.name}"
            )
