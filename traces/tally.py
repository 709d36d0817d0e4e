"""Findings of a whole trace set: how many users, how many items, one example each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from traces.quality.validate import MEANING, TraceFinding, TraceSeverity


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
