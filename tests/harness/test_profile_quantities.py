"""Power and energy of captures that are unlike each other: mean, n, spread and interval, each by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.evidence.capture import Capture
from harness.profiles.build import build_profile
from power.profile import Quantity
from tests.harness.profile_captures import IDLE_W, Stretch, load, one_round, write

TIMES = (1.0, 1.1, 1.3)
"""The power of each capture over that of the first."""

STUDENT_2 = 4.302653  # 95 %, two degrees of freedom
NORMAL = 1.959964


def times(stretches: list[Stretch], factor: float) -> list[Stretch]:
    return [replace(one, watts=one.watts * factor) for one in stretches]


def three(folder: Path, name: str = "c", **facts: object) -> list[Capture]:
    round_ = one_round([1.0, 0.8, 0.8], load_w=2.5 if "background" in facts else None)
    return [write(folder / f"{name}{i}", times(round_, factor), **facts) for i, factor in enumerate(TIMES)]


def assert_is_of_three(found: Quantity | None, first: float, *, rel: float = 2e-3) -> None:
    """Mean, n, spread and Student's interval of three values of which the first is known."""
    sd = first * float(np.std(TIMES, ddof=1))
    assert found is not None
    assert (found.n, found.sessions) == (3, 1)
    assert found.mean == pytest.approx(first * 3.4 / 3, rel=rel)
    assert found.sd == pytest.approx(sd, rel=5 * rel)
    assert found.half_width_95 == pytest.approx(STUDENT_2 * sd / 3**0.5, rel=5 * rel)


def test_power_of_several_captures_is_that_of_all_of_them(tmp_path: Path) -> None:
    profile = build_profile([*three(tmp_path), *three(tmp_path, "l", background=load(0.5))])
    assert_is_of_three(profile.idle_power_w, IDLE_W)
    assert_is_of_three(profile.wait_power_w, 1.0)
    assert_is_of_three(profile.load_levels[1].load_only_power_w, 2.5)


def test_energy_of_several_captures_is_that_of_all_of_them(tmp_path: Path) -> None:
    profile = build_profile(three(tmp_path))
    assert profile.round is not None
    assert profile.upload is not None
    assert_is_of_three(profile.epoch.gross_j, 2.4)
    assert_is_of_three(profile.epoch.net_j, (3.0 - IDLE_W) * 0.8)
    assert_is_of_three(profile.probe.gross_j, 3.0)
    assert_is_of_three(profile.round.gross_j, 3.0 * 2.6)
    assert_is_of_three(profile.upload.gross_j, 0.6, rel=1e-2)


def test_of_one_capture_its_windows_are_the_repetitions(tmp_path: Path) -> None:
    """Idle of 0.8 W for 1.98 s before, of 1.0 W for 2.98 s after: the longer one counts more in the mean."""
    round_ = one_round([1.0, 0.8, 0.6])
    round_[-1] = replace(round_[-1], watts=1.0, seconds=3.0)
    profile = build_profile([write(tmp_path / "one", round_)])
    idle_w = profile.idle_power_w
    assert idle_w is not None
    assert (idle_w.n, idle_w.sessions) == (2, 1)
    assert idle_w.mean == pytest.approx((0.8 * 1.98 + 1.0 * 2.98) / 4.96, rel=1e-3)
    sd_w = 0.2 / 2**0.5
    assert idle_w.sd == pytest.approx(sd_w, rel=1e-2)
    assert idle_w.half_width_95 == pytest.approx(12.706205 * sd_w / 2**0.5, rel=2e-2)
    epoch_s = profile.epoch.duration_s
    assert (epoch_s.n, epoch_s.sd) == (2, pytest.approx(0.2 / 2**0.5))
    assert epoch_s.half_width_95 == pytest.approx(12.706205 * 0.1)


def test_the_gain_of_one_instrument_does_not_average_out_and_of_two_it_does(tmp_path: Path) -> None:
    """2 % of one for all; or 2 % and 4 %, each in half of the captures, independent of each other."""
    same = [write(tmp_path / f"same{i}", one_round([1.0, 0.8]), gain_rel=0.02) for i in range(2)]
    profile = build_profile(same)
    assert profile.epoch.gross_j.half_width_95 == pytest.approx(0.02 * 2.4, rel=0.02)
    assert profile.idle_power_w is not None
    assert profile.idle_power_w.half_width_95 == pytest.approx(0.02 * IDLE_W, rel=0.02)
    other = write(tmp_path / "other", one_round([1.0, 0.8]), gain_rel=0.04)
    profile = build_profile([same[0], other])
    both = np.hypot(0.02, 0.04) / 2
    assert profile.epoch.gross_j.half_width_95 == pytest.approx(both * 2.4, rel=0.02)
    assert profile.idle_power_w is not None
    assert profile.idle_power_w.half_width_95 == pytest.approx(both * IDLE_W, rel=0.02)


def test_a_stated_spread_between_sessions_is_in_every_interval(tmp_path: Path) -> None:
    from power.profile import StatedSpread

    stated = StatedSpread(relative_sd=0.05, source="earlier devices")
    profile = build_profile(three(tmp_path), stated_spread=stated)
    for found, first in (
        (profile.idle_power_w, IDLE_W),
        (profile.wait_power_w, 1.0),
        (profile.epoch.gross_j, 2.4),
    ):
        assert found is not None
        scatter = STUDENT_2 * first * float(np.std(TIMES, ddof=1)) / 3**0.5
        between = NORMAL * 0.05 * first * 3.4 / 3
        assert found.session_sd == pytest.approx(0.05 * first * 3.4 / 3, rel=2e-3)
        assert found.half_width_95 == pytest.approx(np.hypot(scatter, between), rel=1e-2)
