"""Which captures were made in the same session, and what a reader should know about the sessions.

Two captures that follow each other in time are of different sessions if six hours or more lie between them.
If one run numbered them differently, the distance that its plan asks for is enough. So captures of several
runs on one evening are one session, a run that was taken up again on another day has one more, and a session
that was begun too early counts with the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from harness.evidence.capture import Capture
from power import DeviceProfile
from power.profile import SESSIONS_FOR_SPREAD, StatedSpread

SESSION_GAP = timedelta(hours=6)
"""Without measuring: long enough for a device to cool down and for a room to change, shorter than a night."""


@dataclass(frozen=True, slots=True)
class MeasuringSessions:
    """The sessions behind some captures.

    Attributes:
        numbers: The session of each capture, from 1 on in the order of time.
        gaps: Between each session and the one before, from the second on.
        asked: How far apart the run had wanted these two, where it numbered them.
        merged: Gaps between captures that a run numbered differently and that are too close for that, each
            with what was asked for.
    """

    numbers: tuple[int, ...]
    gaps: tuple[timedelta, ...]
    asked: tuple[timedelta | None, ...]
    merged: tuple[tuple[timedelta, timedelta], ...] = ()

    @property
    def count(self) -> int:
        """How many."""
        return len(self.gaps) + 1

    def notes(self, stated: StatedSpread | None) -> Iterator[str]:
        """What their number and distance mean for intervals."""
        rests = f"rests on {self.count} session{'s' * (self.count > 1)}"
        if self.count >= SESSIONS_FOR_SPREAD:
            if stated is not None:
                yield f"{rests}: they show their own spread, the stated {stated.relative_sd:.2%} is not used"
        elif stated is None:
            yield (
                f"{rests}: the spread between days is not in its intervals; measure in "
                f"{SESSIONS_FOR_SPREAD} or more, or state one (--between-sessions)"
            )
        else:
            yield (
                f"{rests}: a spread of {stated.relative_sd:.2%} between sessions is added as stated, "
                f"not measured: {stated.source}"
            )
        for number, (gap, asked) in enumerate(zip(self.gaps, self.asked, strict=True), start=2):
            if asked is not None and gap < asked:
                wanted = f"{_hours(asked)} were asked for"
                yield f"session {number} began {_hours(gap)} after the one before, {wanted}"
            elif gap < SESSION_GAP:
                more = "days may differ by more than that shows"
                yield f"session {number} began only {_hours(gap)} after the one before: {more}"
        for gap, asked in self.merged:
            yield (
                f"two sessions of a run were {_hours(gap)} apart, {_hours(asked)} were asked for: "
                "they count as one"
            )


def find_sessions(captures: Sequence[Capture]) -> MeasuringSessions:
    """The sessions of captures, by when they were made and how their runs numbered them."""
    order = sorted(range(len(captures)), key=lambda i: _began(captures[i]))
    numbers = [1] * len(captures)
    gaps: list[timedelta] = []
    asked: list[timedelta | None] = []
    merged: list[tuple[timedelta, timedelta]] = []
    before, ended = captures[order[0]], _ended(captures[order[0]])
    for i in order[1:]:
        capture = captures[i]
        gap = max(timedelta(0), _began(capture) - ended)
        wanted = _wanted_apart(before, capture)
        if gap >= min(SESSION_GAP, SESSION_GAP if wanted is None else wanted):
            gaps.append(gap)
            asked.append(wanted)
        elif wanted is not None:
            merged.append((gap, wanted))
        numbers[i] = len(gaps) + 1
        before, ended = capture, max(ended, _ended(capture))
    return MeasuringSessions(tuple(numbers), tuple(gaps), tuple(asked), tuple(merged))


def few_sessions(profile: DeviceProfile) -> tuple[str, ...]:
    """A note on what rests on fewer than three sessions, where the profile as a whole does not."""
    few = {
        name.rpartition(".")[0] or name
        for name, quantity in profile.quantities().items()
        if (quantity.sessions or 0) < SESSIONS_FOR_SPREAD and quantity.session_sd_from is None
    }
    if not few or (profile.sessions or 0) < SESSIONS_FOR_SPREAD:
        return ()
    listed = ", ".join(sorted(few))
    spread = "the spread between days is not in their intervals"
    return (f"fewer than {SESSIONS_FOR_SPREAD} sessions are behind {listed}: {spread}",)


def _wanted_apart(before: Capture, after: Capture) -> timedelta | None:
    """How far apart their run wanted two captures; None if it did not number them differently."""
    one, two = before.record.session, after.record.session
    if one is None or two is None or _run(before) != _run(after) or one.number == two.number:
        return None
    return None if two.apart_s is None else timedelta(seconds=two.apart_s)


def _run(capture: Capture) -> str:
    return capture.record.capture_id.rpartition("/")[0]


def _began(capture: Capture) -> datetime:
    return capture.recording.record.started_utc


def _ended(capture: Capture) -> datetime:
    record = capture.recording.record
    return record.started_utc + timedelta(
        microseconds=(record.timebase.host_ns[-1] - record.started_ns) / 1e3
    )


def _hours(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"
