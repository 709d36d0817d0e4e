from __future__ import annotations

import math

import numpy as np
import pytest

from joulefleet.interval import Interval, Scale, student_half_width, student_interval

T_2 = 4.302653  # Student's t, 0.975, two degrees of freedom


def test_student_by_hand() -> None:
    """sd of 1, 2, 3 is 1."""
    found = student_interval(np.array([1.0, 2.0, 3.0]))
    assert found.mean == 2.0
    assert found.high - 2.0 == pytest.approx(T_2 / math.sqrt(3), rel=1e-6)
    assert found.known


def test_positive_values_have_a_positive_interval_by_hand() -> None:
    """3, 6 and 12 rounds: mean 7, sd sqrt(21), half width 11.38: linear it would begin at -4.4."""
    half_width = T_2 * math.sqrt(21) / math.sqrt(3)
    found = student_interval(np.array([3.0, 6.0, 12.0]), Scale.LOG)
    assert found.mean == 7.0
    assert found.low == pytest.approx(7 * math.exp(-half_width / 7), rel=1e-6)
    assert found.high == pytest.approx(7 * math.exp(half_width / 7), rel=1e-6)
    assert found.low > 0


def test_shares_stay_between_nothing_and_all_by_hand() -> None:
    """Accuracies of 0.9, 0.95 and 0.99."""
    mean, half_width = 2.84 / 3, T_2 * 0.0450925 / math.sqrt(3)
    assert mean + half_width > 1  # linear: 106 %
    found = student_interval(np.array([0.9, 0.95, 0.99]), Scale.LOGIT)
    logit, width = math.log(mean / (1 - mean)), half_width / (mean * (1 - mean))
    assert found.mean == pytest.approx(mean)
    assert found.low == pytest.approx(1 / (1 + math.exp(-(logit - width))), rel=1e-5)
    assert found.high == pytest.approx(1 / (1 + math.exp(-(logit + width))), rel=1e-5)


def test_saved_shares_never_save_more_than_all() -> None:
    found = student_interval(np.array([0.99, 0.9, 0.6]), Scale.SAVED)
    left = student_interval(np.array([0.01, 0.1, 0.4]), Scale.LOG)
    assert (found.low, found.high) == pytest.approx((1 - left.high, 1 - left.low))
    assert found.low < 0 < found.high < 1


@pytest.mark.parametrize("scale", list(Scale))
def test_the_same_value_in_every_run_has_no_width(scale: Scale) -> None:
    found = student_interval(np.full(5, 0.25), scale)
    assert (found.low, found.high) == (0.25, 0.25)
    nothing = student_interval(np.zeros(4), scale)
    assert (nothing.mean, nothing.low, nothing.high) == (0.0, 0.0, 0.0)
    everything = student_interval(np.ones(4), Scale.LOGIT)
    assert (everything.low, everything.high) == (1.0, 1.0)


def test_net_energies_may_be_negative_and_then_so_may_their_interval() -> None:
    values = np.array([-1.0, 2.0, 5.0])
    assert student_interval(values, Scale.LOG) == student_interval(values)


@pytest.mark.parametrize("scale", list(Scale))
def test_below_three_values_there_are_the_values(scale: Scale) -> None:
    two, one = student_interval(np.array([0.2, 0.5]), scale), student_interval(np.array([0.5]), scale)
    assert (two.known, two.values, two.text(100)) == (False, (0.2, 0.5), "35 (20 and 50)")
    assert (one.known, one.values, one.text()) == (False, (0.5,), "0.5")


def test_one_value_has_no_interval_and_none_has_no_mean() -> None:
    none = student_interval(np.array([]))
    assert math.isnan(none.mean)
    assert none.text() == "-"
    assert math.isnan(student_half_width(np.array([5.0])))


def test_around_a_value() -> None:
    assert Interval.around(3.0, 0.5) == Interval(3.0, 2.5, 3.5)
    assert not Interval.around(3.0, None).known


def test_plus_minus_as_long_as_both_sides_are_alike() -> None:
    assert Interval.measured(1.2345, 0.0123, Scale.LOG).plus_minus() == "1.234 ± 0.012"
    assert Interval.measured(10.0, 1.9, Scale.LOG).plus_minus() == "10.0 ± 1.9"
    # 10 exp(-0.5) and 10 exp(0.5)
    assert Interval.measured(10.0, 5.0, Scale.LOG).plus_minus() == "10 [6.1, 16]"
    assert Interval.measured(10.0, 50.0, Scale.LINEAR).plus_minus() == "10 ± 50"
    assert Interval(3.0).plus_minus() == "3"


def test_an_error_larger_than_the_reading_leaves_what_is_possible() -> None:
    assert Interval.measured(0.01, 0.5, Scale.LOG) == Interval(0.01, 0.0, 0.51)
    assert Interval.measured(0.9, 0.3, Scale.SAVED) == Interval(0.9, pytest.approx(0.6), 1.0)
