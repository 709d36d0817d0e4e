"""Intervals at their edges, by hand: each scale, each side, what is printed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from joulefleet.interval import Interval, Scale, student_factor, student_half_width, student_interval

NAN = math.nan


def ends(found: Interval) -> tuple[float, float]:
    return found.low, found.high


def test_a_half_width_on_each_scale() -> None:
    assert ends(Interval.around(4.0, 1.0)) == (3.0, 5.0)
    assert ends(Interval.around(4.0, 1.0, Scale.LOG)) == pytest.approx(
        (4 * math.exp(-0.25), 4 * math.exp(0.25)), rel=1e-12
    )
    low, high = 1 / (1 + 4 * math.exp(1.0)), 1 / (1 + 4 * math.exp(-1.0))  # odds of 1 to 4, times e
    assert ends(Interval.around(0.2, 0.16, Scale.LOGIT)) == pytest.approx((low, high), rel=1e-12)
    left = (0.8 * math.exp(-0.25), 0.8 * math.exp(0.25))
    assert ends(Interval.around(0.2, 0.2, Scale.SAVED)) == pytest.approx(
        (1 - left[1], 1 - left[0]), rel=1e-12
    )


def test_where_a_scale_ends_it_is_linear_or_nowhere() -> None:
    assert ends(Interval.around(0.0, 1.0, Scale.LOG)) == (-1.0, 1.0)
    assert ends(Interval.around(-3.0, 1.0, Scale.LOG)) == (-4.0, -2.0)
    assert ends(Interval.around(1.0, 0.25, Scale.SAVED)) == (0.75, 1.25)
    assert ends(Interval.around(1.5, 0.25, Scale.SAVED)) == (1.25, 1.75)
    for mean, half_width in ((0.0, 0.1), (1.0, 0.1), (0.5, 1000.0)):
        assert not Interval.around(mean, half_width, Scale.LOGIT).known
    assert not Interval.around(1.0, 1000.0, Scale.LOG).known


@pytest.mark.parametrize("scale", list(Scale))
def test_no_width_is_no_width_on_every_scale(scale: Scale) -> None:
    for mean in (0.0, 1.0, -2.0):
        assert ends(Interval.around(mean, 0.0, scale)) == (mean, mean)


def test_another_distance_to_each_side() -> None:
    assert Interval.uneven(0.5, 1.0, 2.0, Scale.LINEAR) == Interval(0.5, -0.5, 2.5)
    assert Interval.uneven(-1.0, 2.0, 3.0, Scale.LOG) == Interval(-1.0, -3.0, 2.0)
    narrow, wide = 10 * math.exp(-0.2), 10 * math.exp(0.3)
    assert ends(Interval.uneven(10.0, 2.0, 3.0, Scale.LOG)) == pytest.approx((narrow, wide), rel=1e-12)
    assert ends(Interval.uneven(10.0, 2.0, 30.0, Scale.LOG)) == pytest.approx((narrow, 40.0), rel=1e-12)
    assert ends(Interval.uneven(10.0, 30.0, 3.0, Scale.LOG)) == pytest.approx((0.0, wide), rel=1e-12)
    assert Interval.uneven(0.5, 0.75, 0.75, Scale.LOG) == Interval(0.5, 0.0, 1.25)
    low, high = 1 - 0.5 * math.exp(0.2), 1 - 0.5 * math.exp(-0.4)
    assert ends(Interval.uneven(0.5, 0.1, 0.2, Scale.SAVED)) == pytest.approx((low, high), rel=1e-12)
    assert ends(Interval.uneven(0.5, 1.5, 0.2, Scale.SAVED)) == pytest.approx((-1.0, high), rel=1e-12)


def test_both_ends_have_to_be_known() -> None:
    assert Interval(1.0, 0.5, 1.5).known
    assert not Interval(1.0, NAN, 1.5).known
    assert not Interval(1.0, 0.5, NAN).known


def test_in_another_unit() -> None:
    assert Interval(2.0, 1.0, 4.0, (1.5, 2.5)).times(1000.0) == Interval(2e3, 1e3, 4e3, (1500.0, 2500.0))


def test_the_part_that_can_be_true() -> None:
    assert Interval(0.5, -1.25, 1.5).within(-1.0, 1.0) == Interval(0.5, -1.0, 1.0)
    assert Interval(0.5, 0.25, 0.75).within(-1.0, 1.0) == Interval(0.5, 0.25, 0.75)
    two = student_interval(np.array([0.2, 0.5]))
    assert two.within(-1.0, 1.0) is two


def test_as_text() -> None:
    assert Interval(0.123, 0.119, 0.128).text(100) == "12.3 [11.9, 12.8]"
    assert Interval(12.3, 11.9, 12.8).text() == "12.3 [11.9, 12.8]"
    assert Interval(12.3, values=(11.9, 12.7)).text() == "12.3 (11.9 and 12.7)"
    assert Interval(12.3, values=(12.3,)).text() == "12.3"
    assert Interval(NAN, 1.0, 2.0).text() == "-"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Interval(math.pi), "3.14"),
        (Interval(2.5, 2.5, 2.5), "2.5 ± 0"),
        (Interval(0.0, -4.5, 5.5), "0.0 ± 5.0"),  # just as alike as they must be: 1 of 5 is 20 %
        (Interval(0.0, -4.0, 6.0), "0 [-4, 6]"),
        (Interval(3210.0, 2710.0, 3710.0), "3210 ± 500"),
        (Interval(3.21049, 2.81049, 3.61049), "3.21 ± 0.40"),
        (Interval(math.pi, 2.0, 7.123), "3.14 [2, 7.1]"),
    ],
)
def test_plus_and_minus(value: Interval, text: str) -> None:
    assert value.plus_minus() == text


def test_students_factor_and_the_normal_one() -> None:
    """From the tables: 12.706 and 4.303 for one and two degrees of freedom, 1.960 for ever more."""
    assert student_factor(1) == pytest.approx(12.706, abs=5e-4)
    assert student_factor(2) == pytest.approx(4.303, abs=5e-4)
    assert student_factor(None) == pytest.approx(1.95996, abs=5e-6)


def test_the_half_width_of_a_mean() -> None:
    """sd of 1 and 3 is sqrt(2), so the half width is Student's factor; of 1, 2 and 6 it is sqrt(7)."""
    assert math.isnan(student_half_width(np.array([5.0])))
    assert student_half_width(np.array([1.0, 3.0])) == pytest.approx(12.7062, rel=1e-5)
    assert student_half_width(np.array([1.0, 2.0, 6.0])) == pytest.approx(
        4.302653 * math.sqrt(7 / 3), rel=1e-6
    )


def test_three_values_make_an_interval_and_two_do_not() -> None:
    three, two = student_interval(np.array([1.0, 2.0, 6.0])), student_interval(np.array([1.0, 3.0]))
    assert (three.known, three.values, three.mean) == (True, (), 3.0)
    assert three.high - 3.0 == pytest.approx(4.302653 * math.sqrt(7 / 3), rel=1e-6)
    assert (two.known, two.values, two.mean) == (False, (1.0, 3.0), 2.0)


def test_only_a_negative_value_makes_a_logarithmic_scale_linear() -> None:
    half_width = 4.302653 / math.sqrt(3)  # sd of 1
    found = student_interval(np.array([0.0, 1.0, 2.0]), Scale.LOG)
    assert ends(found) == pytest.approx((math.exp(-half_width), math.exp(half_width)), rel=1e-6)
    found = student_interval(np.array([-1.0, 0.0, 1.0]), Scale.LOG)
    assert ends(found) == pytest.approx((-half_width, half_width), rel=1e-6)
    spent = student_interval(np.array([-0.5, 0.5, -1.5]), Scale.SAVED)  # of saved shares some are negative
    left = 1.5 * math.exp(half_width / 1.5)
    assert spent.low == pytest.approx(1 - left, rel=1e-6)
