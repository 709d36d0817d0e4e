"""Validation and repair of whole trace sets, one trace at a time, and what was found in all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traces.quality.checks import MEANING, TraceFinding, TraceSeverity, validate
from traces.quality.repairs import repair
from traces.storage.trace_set import RepairRecord, TraceSet, new_trace_set


@dataclass(frozen=True, slots=True)
class FindingCount:
    """One kind of finding in one channel.

    Attributes:
        users: Traces that have it.
        count: Intervals or readings concerned.
        example: One of the users.
    """

    code: str
    channel: str
    users: int
    count: int
    example: str

    @property
    def severity(self) -> TraceSeverity:
        """Whether replay refuses."""
        return MEANING[self.code][0]

    def as_dict(self) -> dict[str, str | int]:
        """Plain data for ``--json``."""
        return {
            "severity": self.severity.value,
            "code": self.code,
            "channel": self.channel,
            "meaning": MEANING[self.code][1],
            "users": self.users,
            "count": self.count,
            "example": self.example,
        }


@dataclass(slots=True)
class FindingCounts:
    """Counts findings trace by trace, in memory that does not grow with the number of traces."""

    users: int = 0
    users_with_errors: int = 0
    _rows: dict[tuple[str, str], FindingCount] = field(default_factory=dict)

    def add(self, findings: Iterable[TraceFinding]) -> None:
        """Count the findings of one trace."""
        self.users += 1
        bad = False
        for finding in findings:
            key = (finding.code, finding.channel)
            old = self._rows.get(key) or FindingCount(*key, users=0, count=0, example=finding.user)
            self._rows[key] = FindingCount(*key, old.users + 1, old.count + finding.count, old.example)
            bad |= finding.severity is TraceSeverity.ERROR
        self.users_with_errors += bad

    @property
    def rows(self) -> list[FindingCount]:
        """Errors first, then by how many users have them."""
        return sorted(self._rows.values(), key=lambda row: (row.severity, -row.users, row.code, row.channel))

    def as_dict(self) -> dict[str, Any]:
        """Plain data for ``--json``."""
        return {
            "users": self.users,
            "users_with_errors": self.users_with_errors,
            "findings": [row.as_dict() for row in self.rows],
        }


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
            repairs += changes
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
