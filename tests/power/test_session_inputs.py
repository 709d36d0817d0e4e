"""What the interval over sessions says of odd input: too few values, equal ones, none, or no numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from joulefleet.errors import DataQualityError
from power.profile import quantity_from_sessions


def test_one_repetition_a_session() -> None:
    """2, 4 and 9 by hand: mean 5, standard deviation sqrt(13), Student's factor 4.303 with two degrees."""
    q = quantity_from_sessions([[2.0], [4.0], [9.0]])
    assert (q.mean, q.n, q.sessions, q.sd) == (5.0, 3, 3, None)
    assert q.session_sd == pytest.approx(math.sqrt(13))
    assert q.half_width_95 == pytest.approx(4.3027 * math.sqrt(13 / 3), rel=1e-4)


def test_a_session_of_one_repetition_counts_as_much_as_the_others() -> None:
    q = quantity_from_sessions([[2.0], [3.0, 5.0], [8.0, 10.0]])
    assert (q.mean, q.n, q.sessions) == (5.0, 5, 3)
    assert q.sd == pytest.approx(math.sqrt(2))
    assert q.half_width_95 == pytest.approx(4.3027 * math.sqrt(13 / 3), rel=1e-4)


def test_a_single_value_has_no_interval() -> None:
    q = quantity_from_sessions([[8.4]])
    assert (q.mean, q.n, q.sessions, q.sd, q.half_width_95, q.session_sd) == (8.4, 1, 1, None, None, None)


def test_repetitions_without_scatter() -> None:
    q = quantity_from_sessions([[2.0, 2.0], [4.0, 4.0], [9.0, 9.0]])
    assert (q.mean, q.sd) == (5.0, 0.0)
    assert q.session_sd == pytest.approx(math.sqrt(13))


def test_equal_values_everywhere() -> None:
    q = quantity_from_sessions([[2.0, 2.0]] * 3)
    assert (q.mean, q.n, q.sd, q.session_sd, q.half_width_95) == (2.0, 6, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None])
def test_what_is_no_finite_number_is_refused(bad) -> None:
    with pytest.raises(DataQualityError, match="finite"):
        quantity_from_sessions([[1.0, bad], [1.0, 1.1], [1.2, 1.3]])


@pytest.mark.parametrize("nothing", [[], [[]], [[], [], []]])
def test_no_value_at_all_is_refused(nothing) -> None:
    with pytest.raises(DataQualityError, match="no value"):
        quantity_from_sessions(nothing)


def test_an_empty_session_is_none() -> None:
    """Two sessions with values are two, however many empty ones stand beside them."""
    q = quantity_from_sessions([[1.0, 2.0], [], [3.0, 4.0], []])
    assert (q.mean, q.n, q.sessions, q.session_sd, q.session_sd_from) == (2.5, 4, 2, None, None)


def test_negative_values_mirror_positive_ones() -> None:
    """Net energy may be negative where the baseline is noisy."""
    values = [[1.0, 1.1], [1.2, 1.4], [0.9, 1.0]]
    q, mirrored = (quantity_from_sessions([[sign * v for v in s] for s in values]) for sign in (1, -1))
    assert mirrored.mean == pytest.approx(-q.mean)
    assert (mirrored.half_width_95, mirrored.sd) == pytest.approx((q.half_width_95, q.sd))
    assert mirrored.session_sd == pytest.approx(q.session_sd)


def test_integers_and_arrays_are_as_good_as_lists_of_floats() -> None:
    integers = [[1, 2], [2, 3], [5, 6]]
    expected = quantity_from_sessions([[float(v) for v in s] for s in integers])
    assert quantity_from_sessions(integers) == expected
    assert quantity_from_sessions([np.array(s, dtype=np.int64) for s in integers]) == expected
    assert quantity_from_sessions([np.array(s, dtype=np.float32) for s in integers]) == expected


def test_order_of_sessions_and_repetitions_does_not_matter() -> None:
    q = quantity_from_sessions([[1.0, 1.5, 1.1], [2.0, 2.2], [1.7, 1.2]])
    turned = quantity_from_sessions([[1.2, 1.7], [2.2, 2.0], [1.1, 1.0, 1.5]])
    assert (turned.mean, turned.half_width_95) == pytest.approx((q.mean, q.half_width_95))
    assert (turned.sd, turned.session_sd) == pytest.approx((q.sd, q.session_sd))


def test_unit_of_the_values_does_not_matter() -> None:
    values = [[1.0, 1.5, 1.1], [2.0, 2.2], [1.7, 1.2]]
    q, micro = (quantity_from_sessions([[k * v for v in s] for s in values]) for k in (1, 1e-6))
    assert micro.half_width_95 == pytest.approx(1e-6 * q.half_width_95)


def test_small_scatter_on_a_large_value_is_kept() -> None:
    """Microseconds on a clock of months: nothing is lost by squaring large numbers."""
    values = [[0.001, 0.002], [0.003, 0.005], [0.004, 0.009]]
    q, far = (quantity_from_sessions([[offset + v for v in s] for s in values]) for offset in (0.0, 1e7))
    assert far.half_width_95 == pytest.approx(q.half_width_95, rel=1e-4)
    assert far.sd == pytest.approx(q.sd, rel=1e-4)


def test_very_many_repetitions() -> None:
    values = np.random.default_rng(5).normal(5, 0.1, (3, 300_000))
    q = quantity_from_sessions(values)
    assert (q.n, q.sessions) == (900_000, 3)
    assert q.sd == pytest.approx(0.1, rel=0.01)


def test_means_that_coincide_do_not_make_repetitions_certain() -> None:
    """By hand: pooled sd sqrt(0.5), three degrees of freedom, Student's factor 3.1824, six values."""
    q = quantity_from_sessions([[1.0, 2.0]] * 3)
    assert (q.mean, q.session_sd) == (1.5, 0.0)
    assert q.sd == pytest.approx(math.sqrt(0.5))
    assert q.half_width_95 == pytest.approx(3.1824 * math.sqrt(0.5 / 6), rel=1e-4)


def test_two_sessions_of_one_value_each() -> None:
    q = quantity_from_sessions([[1.0], [2.0]])
    assert (q.n, q.sessions, q.session_sd) == (2, 2, None)
    assert q.sd == pytest.approx(math.sqrt(0.5))
    assert q.half_width_95 == pytest.approx(12.706 * math.sqrt(0.5 / 2), rel=1e-4)


@pytest.mark.parametrize("width", [-1.0, math.nan, math.inf])
def test_a_systematic_part_that_is_no_width_is_refused(width: float) -> None:
    with pytest.raises(DataQualityError, match="width"):
        quantity_from_sessions([[1.0, 2.0]], systematic_half_width=width)


@pytest.mark.parametrize(
    "values",
    [[1.0, 2.0], [["1", "2"]], [[True, False]], [[10**400]], [[1e200, -1e200]], [[[1.0], [2.0]]], 3.0],
)
def test_what_is_no_list_of_numbers_by_session_is_refused(values) -> None:
    with pytest.raises(DataQualityError):
        quantity_from_sessions(values)
