"""Which captures are of one session, to the microsecond, and what is said about it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from harness.evidence.capture import Capture, CaptureSession
from harness.profiles.sessions import MeasuringSessions, few_sessions, find_sessions
from power.profile import StatedSpread
from power.timebase import Timebase
from tests.harness.by_hand.test_scaled import cost, profile
from tests.harness.profile_captures import Stretch, write

BEGAN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
US = timedelta(microseconds=1)


class Bench:
    """Captures of one second or more, each begun so long after the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def capture(self, after: timedelta, seconds: float = 1.0, **facts: Any) -> Capture:
        self.count += 1
        path = self.folder / f"c{self.count}"
        return write(path, [Stretch(1.0, seconds)], began_utc=BEGAN + after, **({"local_epochs": 1} | facts))


def numbered(run: str, number: int, apart_s: float | None = None) -> dict[str, Any]:
    return {"capture_id": run, "session": CaptureSession(number=number, planned=9, apart_s=apart_s)}


def test_six_hours_after_the_end_of_the_one_before(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    first = bench.capture(timedelta(0), 2.0)
    end = timedelta(seconds=2)
    exact = find_sessions([bench.capture(end + 6 * HOUR), first])
    assert exact.numbers == (2, 1)
    assert (exact.count, exact.gaps, exact.asked, exact.merged) == (2, (6 * HOUR,), (None,), ())
    less = find_sessions([first, bench.capture(end + 6 * HOUR - US)])
    assert (less.numbers, less.count, less.gaps, less.merged) == ((1, 1), 1, (), ())
    assert find_sessions([first]).numbers == (1,)


def test_captures_at_the_same_time_end_with_the_later(tmp_path: Path) -> None:
    """On two devices: a long one and a short one within it."""
    bench = Bench(tmp_path)
    long, short = bench.capture(timedelta(0), 30.0), bench.capture(timedelta(seconds=5), 1.0)
    after = bench.capture(timedelta(seconds=30) + 6 * HOUR)
    found = find_sessions([long, short, after])
    assert (found.numbers, found.gaps) == ((1, 1, 2), (6 * HOUR,))
    before = bench.capture(timedelta(seconds=30) + 6 * HOUR - US)
    assert find_sessions([long, short, before]).numbers == (1, 1, 1)


def test_a_recording_ends_with_its_last_knot(tmp_path: Path) -> None:
    """Begun 3 s into the host's clock, knots at 4, 13 and 33 s: it lasted 30 s."""
    bench = Bench(tmp_path)
    first = bench.capture(timedelta(0))
    base = Timebase(ticks=(0, 9000, 29_000), host_ns=(4 * 10**9, 13 * 10**9, 33 * 10**9))
    record = first.recording.record.model_copy(update={"timebase": base, "started_ns": 3 * 10**9})
    long = replace(first, recording=replace(first.recording, record=record))
    exact = find_sessions([long, bench.capture(timedelta(seconds=30) + 6 * HOUR)])
    assert (exact.numbers, exact.gaps) == ((1, 2), (6 * HOUR,))


def test_what_a_run_asks_for_is_enough_and_not_more_than_six_hours(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    end = timedelta(seconds=1)
    first = bench.capture(timedelta(0), **numbered("a/1", 1, 3600.0))
    exact = find_sessions([first, bench.capture(end + HOUR, **numbered("a/2", 2, 3600.0))])
    assert (exact.numbers, exact.gaps, exact.asked) == ((1, 2), (HOUR,), (HOUR,))
    less = find_sessions([first, bench.capture(end + HOUR - US, **numbered("a/2", 2, 3600.0))])
    assert (less.numbers, less.merged) == ((1, 1), ((HOUR - US, HOUR),))
    day = 86_400.0
    far = find_sessions([first, bench.capture(end + 6 * HOUR, **numbered("a/2", 2, day))])
    assert (far.numbers, far.asked) == ((1, 2), (24 * HOUR,))
    for other in (
        numbered("b/1", 2, 3600.0),  # of another run
        numbered("a/2", 1, 3600.0),  # of the same session
        numbered("a/2", 2, None),  # which asks for nothing
        {"capture_id": "a/2"},  # not numbered
    ):
        found = find_sessions([first, bench.capture(end + 2 * HOUR, **other)])
        assert (found.numbers, found.merged) == ((1, 1), ())
    overlapping = find_sessions([first, bench.capture(end / 2, **numbered("a/2", 2, 0.0))])
    assert (overlapping.numbers, overlapping.gaps) == ((1, 2), (timedelta(0),))


def notes_of(
    gaps: list[timedelta], asked: list[timedelta | None], stated: StatedSpread | None = None, **more: Any
) -> list[str]:
    return list(MeasuringSessions((1,), tuple(gaps), tuple(asked), **more).notes(stated))


STATED = StatedSpread(relative_sd=0.03, source="our bench")
ADVICE = (
    "the spread between days is not in its intervals; measure in 3 or more, or state one (--between-sessions)"
)


def test_notes_on_their_number() -> None:
    day = 24 * HOUR
    assert notes_of([], []) == [f"rests on 1 session: {ADVICE}"]
    assert notes_of([day], [None]) == [f"rests on 2 sessions: {ADVICE}"]
    assert notes_of([day, day], [None, None]) == []
    assert notes_of([day], [None], STATED) == [
        "rests on 2 sessions: a spread of 3.00% between sessions is added as stated, not measured: our bench"
    ]
    assert notes_of([day, day], [None, None], STATED) == [
        "rests on 3 sessions: they show their own spread, the stated 3.00% is not used"
    ]


def test_notes_on_their_distance() -> None:
    day, six = 24 * HOUR, 6 * HOUR
    assert notes_of([six, day, day], [None, day, None]) == []
    assert notes_of([six - US, day, day], [None, day + US, day]) == [
        "session 2 began only 6.0 h after the one before: days may differ by more than that shows",
        "session 3 began 24.0 h after the one before, 24.0 h were asked for",
    ]
    assert notes_of([day, day, HOUR], [None, None, HOUR]) == [
        "session 4 began only 1.0 h after the one before: days may differ by more than that shows"
    ]
    assert notes_of([day, day, HOUR / 2], [None, None, HOUR]) == [
        "session 4 began 30 min after the one before, 1.0 h were asked for"
    ]
    merged = ((59 * 60 * 10**6 * US, HOUR), (2 * HOUR, day))
    assert notes_of([day, day], [None, None], merged=merged) == [
        "two sessions of a run were 59 min apart, 1.0 h were asked for: they count as one",
        "two sessions of a run were 2.0 h apart, 24.0 h were asked for: they count as one",
    ]


def test_what_rests_on_fewer_sessions_than_the_rest() -> None:
    def made(sessions: int | None, **by_phase: int | None) -> tuple[str, ...]:
        changes: dict[str, Any] = {}
        for phase in ("probe", "epoch", "round", "download", "upload"):
            of = by_phase.get(phase, 3)
            changes[phase] = {
                name: q.model_copy(update={"sessions": of, "n": 3}) for name, q in cost(1.0).items()
            }
        whole = profile(sessions=sessions, epoch_cpu_s=None, idle_power_w=None, **changes)
        return few_sessions(whole)

    assert made(3) == ()
    spread = "the spread between days is not in their intervals"
    assert made(3, upload=2) == (f"fewer than 3 sessions are behind upload: {spread}",)
    assert made(4, upload=2, download=None) == (
        f"fewer than 3 sessions are behind download, upload: {spread}",
    )
    assert made(2, upload=2) == ()
    assert made(None, upload=2) == ()
    stated = profile(sessions=3, epoch_cpu_s=None)
    (note,) = few_sessions(stated)
    assert note == (
        f"fewer than 3 sessions are behind download, epoch, idle_power_w, probe, round, upload: {spread}"
    )
