"""Quantities of captures that are unlike each other, from windows with given numbers: n, sd, half width."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from harness.profiles import quantities
from power.energy import Baseline, MeasuredRecording
from power.model import Accuracy, RangeAccuracy
from power.profile import Quantity
from tests.power.by_hand.made import idle_of, measured

Z = 1.959963984540054
T1, T2 = 12.706204736432095, 4.302652729911275


def accuracy_of(gain_rel: float = 0.0) -> Accuracy:
    return Accuracy(
        current=(
            RangeAccuracy(name="fine", up_to_a=0.3, gain_rel=0, offset_a=0, step_a=0),
            RangeAccuracy(name="coarse", gain_rel=gain_rel, offset_a=0, step_a=0),
        ),
        voltage_gain_rel=0, voltage_offset_v=0, voltage_step_v=0, source="test",
    )  # fmt: skip


def recording(*windows: tuple[float, float, float], gain_rel: float = 0.0, **more: Any) -> MeasuredRecording:
    """Windows from one second to another with so many joules."""
    own = more.pop("own", {})
    return MeasuredRecording(tuple(measured(*one, **own) for one in windows), accuracy_of(gain_rel), **more)


EMPTY = recording()


def assert_quantity(
    found: Quantity, mean: float, n: int, sd: float | None, half: float | None, sessions: int = 1
) -> None:
    assert (found.n, found.sessions) == (n, sessions)
    assert found.mean == pytest.approx(mean)
    assert found.sd == (None if sd is None else pytest.approx(sd))
    assert found.half_width_95 == (None if half is None else pytest.approx(half))


def test_energy_of_one_capture_is_that_of_its_windows() -> None:
    """3, 4 and 8 J; a gain of 2 %, one for all."""
    one = recording((0, 1, 3.0), (2, 3, 4.0), (4, 6, 8.0), gain_rel=0.02)
    found = quantities.energy([(1, EMPTY), (1, one)], net=False)
    sd = math.sqrt((4 + 1 + 9) / 2)
    assert_quantity(found, 5.0, 3, sd, math.hypot(T2 * sd / math.sqrt(3), 0.02 * 5.0))
    (alone,) = [quantities.energy([(1, recording((0, 1, 3.0), gain_rel=0.02))], net=False)]
    assert_quantity(alone, 3.0, 1, None, 0.06)
    nothing = quantities.energy([(1, recording((0, 1, 0.0), (2, 3, 0.0)))], net=False)
    assert_quantity(nothing, 0.0, 2, 0.0, 0.0)


def test_energies_of_captures_are_means_of_their_windows() -> None:
    found = quantities.energy(
        [(1, recording((0, 1, 3.0), (2, 3, 5.0))), (1, recording((0, 1, 7.0))), (2, recording((0, 1, 9.0)))],
        net=False,
    )
    assert (found.n, found.sessions) == (3, 2)
    assert found.mean == pytest.approx((5.5 + 9.0) / 2)
    stated = quantities.energy(
        [(1, recording((0, 1, 3.0), (2, 3, 5.0))), (1, recording((0, 1, 7.0)))], net=False, between=0.1
    )
    sd = 3 / math.sqrt(2)
    assert_quantity(stated, 5.5, 2, sd, math.hypot(T1 * sd / math.sqrt(2), Z * 0.55))
    assert stated.session_sd == pytest.approx(0.55)


def test_energies_by_two_instruments() -> None:
    """Means of 3 and 7 J by 2 %, of 5 J by 4 %: each in its share of three; steps are not in their ratios."""
    found = quantities.energy(
        [
            (1, recording((0, 1, 3.0), gain_rel=0.02)),
            (1, recording((0, 1, 4.0), (2, 3, 6.0), gain_rel=0.04)),
            (1, recording((0, 1, 7.0), gain_rel=0.02)),
        ],
        net=False,
    )
    systematic = math.hypot(0.02 * 10 / 3, 0.04 * 5 / 3)
    assert_quantity(found, 5.0, 3, 2.0, math.hypot(T2 * 2 / math.sqrt(3), systematic))
    assert found.instrument_half_width_95 == pytest.approx(systematic)


def test_net_energies_leave_out_the_idle_power_of_their_own_time() -> None:
    """Idle of 1 W around 5 s, 2 W around 45 s: 1.25 W at 15 s, 1.5 W at 25 s."""
    baseline = Baseline(idle_of(0, 10, 1.0), idle_of(40, 50, 2.0))
    one = recording((14, 16, 10.0), (23, 27, 20.0), baseline=baseline)
    found = quantities.energy([(1, one)], net=True)
    values = [10 - 2 * 1.25, 20 - 4 * 1.5]
    assert found.mean == pytest.approx(sum(values) / 2)
    assert found.sd == pytest.approx((values[1] - values[0]) / math.sqrt(2))
    gross = quantities.energy([(1, one)], net=False)
    assert_quantity(gross, 15.0, 2, 10 / math.sqrt(2), T1 * 5.0)
    # Above zero is another interval than around zero: the bend of idle power is in it.
    assert found.half_width_95 is not None
    bend_w = math.sqrt(1.0 / 12)
    scatter = T1 * (values[1] - values[0]) / 2
    assert found.half_width_95 == pytest.approx(math.hypot(scatter, Z * 3.0 * bend_w))


def test_power_of_one_capture_counts_long_windows_more() -> None:
    """2 W for 1 s, 4 W for 3 s."""
    one = recording((0, 1, 2.0), (2, 5, 12.0), gain_rel=0.02)
    found = quantities.power([(1, EMPTY), (1, one)])
    sd = 2 / math.sqrt(2)
    systematic = 0.02 * 7.0 / 2.0  # of the mean energy, 7 J, over the mean time, 2 s
    assert_quantity(found, 14 / 4, 2, sd, math.hypot(T1 * sd / math.sqrt(2), systematic))
    assert found.instrument_half_width_95 == pytest.approx(systematic)
    # Gross, whatever idle draws.
    baseline = Baseline(idle_of(0, 10, 1.0))
    above = quantities.power([(1, recording((14, 16, 10.0), gain_rel=0.02, baseline=baseline))])
    assert above.instrument_half_width_95 == pytest.approx(0.1)
    nothing = quantities.power([(1, recording((0, 1, 0.0), (2, 5, 0.0)))])
    assert_quantity(nothing, 0.0, 2, 0.0, 0.0)


def test_power_of_several_captures_is_the_mean_of_theirs() -> None:
    """14 J in 4 s, 10 J in 2 s, 6 J in 1 s; two instruments of 2 % and 4 %."""
    found = quantities.power(
        [
            (1, recording((0, 1, 2.0), (2, 5, 12.0), gain_rel=0.02)),
            (1, recording((0, 2, 10.0), gain_rel=0.04)),
            (1, EMPTY),
            (1, recording((0, 1, 6.0), gain_rel=0.02)),
        ]
    )
    powers = np.array([3.5, 5.0, 6.0])
    # Mean energies of 7, 10 and 6 J in 2, 2 and 1 s; each instrument's in a third.
    systematic = math.hypot(0.02 * (7 + 6) / 3, 0.04 * 10 / 3) / (5 / 3)
    sd = float(powers.std(ddof=1))
    assert_quantity(found, 14.5 / 3, 3, sd, math.hypot(T2 * sd / math.sqrt(3), systematic))
    assert found.instrument_half_width_95 == pytest.approx(systematic)
    stated = quantities.power([(1, recording((0, 1, 2.0))), (1, recording((0, 1, 4.0)))], between=0.1)
    assert stated.half_width_95 == pytest.approx(math.hypot(T1 * 1.0, Z * 0.3))
    alone = quantities.power([(1, recording((0, 1, 2.0)))], between=0.1)
    assert alone.session_sd == pytest.approx(0.2)


def test_durations_have_the_time_beside_them() -> None:
    """1, 2 and 3 s; 0.3 s beside one of them."""
    first = [measured(0, 1, 1.0, beside_s=0.3), measured(2, 4, 1.0)]
    found = quantities.duration([(1, first), (1, []), (1, [measured(0, 3, 1.0)])])
    sd = 1.5 / math.sqrt(2)
    extent = Z * (0.15 + 0.0) / 2 / math.sqrt(3)
    assert_quantity(found, 2.25, 2, sd, math.hypot(T1 * sd / math.sqrt(2), extent))
    one = quantities.duration([(1, [measured(0, 1, 1.0, beside_s=0.3)])])
    assert_quantity(one, 1.0, 1, None, None)
    two = quantities.duration([(1, first)])
    sd = 1 / math.sqrt(2)
    assert_quantity(two, 1.5, 2, sd, math.hypot(T1 * sd / math.sqrt(2), Z * 0.15 / math.sqrt(3)))
    stated = quantities.duration([(1, first)], between=0.1)
    assert stated.session_sd == pytest.approx(0.15)


def test_scattered_values() -> None:
    found = quantities.scattered([(1, [1.0, 2.0]), (1, []), (2, [4.0])])
    assert (found.mean, found.n, found.sessions) == (pytest.approx(2.75), 2, 2)
    one = quantities.scattered([(1, [1.0, 2.0])], between=0.1)
    assert_quantity(one, 1.5, 2, 1 / math.sqrt(2), math.hypot(T1 * 0.5, Z * 0.15))
    assert quantities.scattered([(1, [3.0])]).half_width_95 is None
