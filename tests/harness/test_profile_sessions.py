"""Captures of several days in one profile: which are of one session, and what that does to intervals."""

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.evidence.capture import Capture, CaptureSession
from harness.profiles.build import build_profile
from harness.profiles.sessions import find_sessions
from power.profile import DeviceProfile, StatedSpread
from tests.harness.profile_captures import load, one_round, write

MONDAY = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
T2 = 4.30265273
STATED = StatedSpread(relative_sd=0.03, source="our own bench, winter 2025")


def capture(folder: Path, hours: float, seconds: float = 1.0, **facts: Any) -> Capture:
    """A round of two epochs so many hours after Monday morning."""
    path = folder / f"c{len(list(folder.glob('*')))}"
    return write(path, one_round([seconds, seconds]), began_utc=MONDAY + timedelta(hours=hours), **facts)


def numbered(number: int, apart_s: float | None = 12 * 3600.0, **facts: Any) -> CaptureSession:
    return CaptureSession(number=number, planned=3, apart_s=apart_s, **facts)


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        ([0, 0.1, 0.2], [1, 1, 1]),
        ([0, 24, 48], [1, 2, 3]),
        ([0, 5.9, 11.8], [1, 1, 1]),
        ([0, 6.1, 6.2, 30], [1, 2, 2, 3]),
        ([48, 0, 24.1, 24], [3, 1, 2, 2]),
    ],
)
def test_six_hours_without_measuring_begin_another_session(
    tmp_path: Path, hours: list[float], expected: list[int]
) -> None:
    found = find_sessions([capture(tmp_path, h) for h in hours])
    assert list(found.numbers) == expected
    assert found.count == max(expected)


def test_what_a_run_asked_for_separates_its_sessions(tmp_path: Path) -> None:
    """Also below six hours; another run of the same evening is no session of its own."""
    captures = [
        capture(tmp_path, 0, capture_id="a/1", session=numbered(1, 3600.0)),
        capture(tmp_path, 0.5, capture_id="a/2", session=numbered(1, 3600.0)),
        capture(tmp_path, 2, capture_id="a/3", session=numbered(2, 3600.0)),
        capture(tmp_path, 3.5, capture_id="b/1", session=numbered(1, 3600.0)),
        capture(tmp_path, 5, capture_id="b/2", session=numbered(1, 3600.0)),
        capture(tmp_path, 30, capture_id="b/3", session=numbered(1, 3600.0)),
    ]
    found = find_sessions(captures)
    assert found.numbers == (1, 1, 2, 2, 2, 3)
    assert [round(gap.total_seconds() / 3600, 1) for gap in found.gaps] == [1.5, 25.0]


def test_what_is_made_up_for_beside_a_later_session_counts_with_it(tmp_path: Path) -> None:
    """A repetition of Monday that failed and was repeated on Tuesday, just before Tuesday's own."""
    captures = [
        capture(tmp_path, 0, capture_id="a/1", session=numbered(1)),
        capture(tmp_path, 24, capture_id="a/2", session=numbered(1)),
        capture(tmp_path, 24.1, capture_id="a/3", session=numbered(2)),
    ]
    assert find_sessions(captures).numbers == (1, 2, 2)


def of_days(folder: Path, days: list[list[float]], **facts: Any) -> DeviceProfile:
    """Epochs of so many seconds, by day, alone and beside a load that doubles them."""
    captures = []
    for day, seconds in enumerate(days):
        for i, s in enumerate(seconds):
            hours = 24 * day + 0.2 * i
            captures.append(capture(folder, hours, s, **facts))
            beside = one_round([2 * s, 2 * s], train_w=5.0, load_w=2.0)
            when = MONDAY + timedelta(hours=hours + 0.1)
            captures.append(
                write(folder / f"load{day}-{i}", beside, began_utc=when, background=load(0.5), **facts)
            )
    return build_profile(captures)


def test_every_quantity_rests_on_the_sessions(tmp_path: Path) -> None:
    """Day means 1.0, 1.1 and 1.3 s, three, two and one repetitions; joules are three times the seconds."""
    profile = of_days(tmp_path, [[0.98, 1.0, 1.02], [1.08, 1.12], [1.3]])
    assert profile.sessions == 3
    assert not any("session" in note for note in profile.notes)
    sd = math.sqrt((2 * 0.02**2 + 2 * 0.02**2) / 3)
    means_sd = math.sqrt(0.07 / 3)
    mean = 3.4 / 3
    for cost, factor in ((profile.probe, 1), (profile.epoch, 1), (profile.load_levels[1].epoch, 2)):
        found = cost.duration_s
        assert (found.n, found.sessions, found.session_sd_from) == (6, 3, "measured")
        assert found.mean == pytest.approx(factor * mean, rel=1e-3)
        assert found.sd == pytest.approx(factor * sd, rel=0.02)
        assert found.half_width_95 == pytest.approx(factor * T2 * means_sd / math.sqrt(3), rel=5e-3)
        explained = sd**2 * (1 / 3 + 1 / 2 + 1) / 3
        assert found.session_sd == pytest.approx(factor * math.sqrt(means_sd**2 - explained), rel=5e-3)
    gross = profile.epoch.gross_j
    assert (gross.n, gross.sessions) == (6, 3)
    assert gross.half_width_95 == pytest.approx(3 * T2 * means_sd / math.sqrt(3), rel=0.02)
    for name, quantity in profile.quantities().items():
        assert (quantity.n, quantity.sessions, quantity.session_sd_from) == (6, 3, "measured"), name
    assert {"idle_power_w", "wait_power_w", "load_levels.cpu-0.5.load_only_power_w", "upload.net_j"} <= set(
        profile.quantities()
    )


@pytest.mark.parametrize("days", [[[0.98, 1.0, 1.02]], [[0.98, 1.02], [1.2, 1.22]]])
def test_fewer_than_three_sessions_say_that_days_are_not_in(tmp_path: Path, days: list[list[float]]) -> None:
    profile = of_days(tmp_path, days)
    assert profile.sessions == len(days)
    (note,) = [note for note in profile.notes if "session" in note]
    assert note.startswith(f"rests on {len(days)} session")
    assert "the spread between days is not in its intervals" in note
    assert all(q.session_sd is None and q.session_sd_from is None for q in profile.quantities().values())


def test_the_spread_that_a_plan_states_is_added_and_named(tmp_path: Path) -> None:
    session = CaptureSession(number=1, stated_spread=STATED)
    plain = of_days(tmp_path / "plain", [[0.98, 1.0, 1.02]])
    found = of_days(tmp_path / "stated", [[0.98, 1.0, 1.02]], session=session)
    assert found.stated_spread == STATED
    (note,) = [note for note in found.notes if "session" in note]
    assert "3.00% between sessions is added as stated, not measured: our own bench, winter 2025" in note
    before, after = plain.epoch.duration_s, found.epoch.duration_s
    assert (after.mean, after.n, after.sd) == (before.mean, before.n, before.sd)
    assert (after.session_sd, after.session_sd_from) == (pytest.approx(0.03), "stated")
    assert after.half_width_95 == pytest.approx(math.hypot(before.half_width_95, 1.95996 * 0.03), rel=1e-5)


def test_a_statement_gives_way_to_three_sessions(tmp_path: Path) -> None:
    captures = [capture(tmp_path, 24 * day, 1 + 0.1 * day) for day in range(3)]
    found, plain = build_profile(captures, stated_spread=STATED), build_profile(captures)
    assert found.epoch == plain.epoch
    assert any("the stated 3.00% is not used" in note for note in found.notes)


@pytest.mark.parametrize(
    ("apart_s", "hours", "sessions", "note"),
    [
        (12 * 3600, [0, 8, 30], 3, "session 2 began 8.0 h after the one before, 12.0 h were asked for"),
        (12 * 3600, [0, 2, 30, 60], 3, "two sessions of a run were 2.0 h apart, 12.0 h were asked for: they"),
        (60, [0, 0.5, 24], 3, "session 2 began only 30 min after the one before: days may differ by more"),
    ],
)
def test_sessions_closer_than_asked_are_named(
    tmp_path: Path, apart_s: float, hours: list[float], sessions: int, note: str
) -> None:
    captures = [
        capture(tmp_path, hour, capture_id=f"run/{number}", session=numbered(number, apart_s))
        for number, hour in enumerate(hours, start=1)
    ]
    profile = build_profile(captures)
    assert profile.sessions == sessions
    (found,) = [note for note in profile.notes if "session" in note]
    assert found.startswith(note)


def test_a_part_with_fewer_sessions_than_the_profile_is_named(tmp_path: Path) -> None:
    captures = [
        write(
            tmp_path / f"d{day}",
            one_round([1.0, 1.0], transfers=day == 0),
            began_utc=MONDAY + timedelta(days=day),
        )
        for day in range(3)
    ]
    profile = build_profile(captures)
    assert profile.upload is not None
    assert (profile.epoch.gross_j.sessions, profile.upload.gross_j.sessions) == (3, 1)
    (note,) = [note for note in profile.notes if "session" in note]
    assert note.startswith("fewer than 3 sessions are behind download, upload:")
