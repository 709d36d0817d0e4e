from __future__ import annotations

import math

import numpy as np
import pytest

from joulefleet.interval import Interval, student_half_width, student_interval


def test_student_by_hand() -> None:
    """t(2, 0.975) = 4.302653, sd of 1, 2, 3 is 1."""
    found = student_interval(np.array([1.0, 2.0, 3.0]))
    assert found.mean == 2.0
    assert found.high - 2.0 == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert found.known


def test_one_value_has_no_interval_and_none_has_no_mean() -> None:
    one, none = student_interval(np.array([5.0])), student_interval(np.array([]))
    assert one.mean == 5.0
    assert not one.known
    assert math.isnan(none.mean)
    assert math.isnan(student_half_width(np.array([5.0])))


def test_around_a_value() -> None:
    assert Interval.around(3.0, 0.5) == Interval(3.0, 2.5, 3.5)
    assert not Interval.around(3.0, None).known
