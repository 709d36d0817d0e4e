"""Validation and repair of whole trace sets, one trace at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from traces.quality.repair import repair
from traces.quality.validate import validate
from traces.storage.manifest import RepairRecord
from traces.storage.trace_set import TraceSet, new_trace_set
from traces.tally import FindingCounts

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class SetRepair:
    """What became of a set.

    Attributes:
        repaired: The new set.
        repairs: Every change that was made.
        left: Findings in the repaired traces.
    """

    repaired: TraceSet
    repairs: tuple[RepairRecord, ...]
    left: FindingCounts


def validate_set(traces: TraceSet, on_progress: Progress | None = None) -> FindingCounts:
    """The findings of every trace of a set, counted."""
    tally = FindingCounts()
    for number, trace in enumerate(traces, 1):
        tally.add(validate(trace))
        if on_progress is not None:
            on_progress(number)
    return tally


def repair_set(traces: TraceSet, out: Path, on_progress: Progress | None = None) -> SetRepair:
    """Write a repaired copy of a set that lists every change in its manifest."""
    repairs: list[RepairRecord] = []
    left = FindingCounts()
    with new_trace_set(out) as new:
        for number, trace in enumerate(traces, 1):
            better, changes = repair(trace)
            new.add(better)
            left.add(validate(better))
            repairs += [
                RepairRecord(user=c.user, channel=c.channel, action=c.action, count=c.count) for c in changes
            ]
            if on_progress is not None:
                on_progress(number)
        origin = traces.record.provenance
        new.describe(
            origin.weakened(origin.origin, basis=f"repaired copy, {len(repairs)} changes"),
            imported=traces.record.imported,
            repaired_from=traces.record.sha256(),
            repairs=repairs,
        )
    return SetRepair(TraceSet(out), tuple(repairs), left)
