"""White and flicker noise by hand and by a second, slower way."""

from __future__ import annotations

import math

import numpy as np
import pytest

from power.energy.noise import PowerSeries, Variance, _allan, flicker_factor, slow_noise, total
from tests.power.by_hand.made import flicker


def test_variances_add_and_what_is_known_exactly_has_no_degrees_of_freedom() -> None:
    # The square of their sum over the sum of each square by its degrees of freedom: 100 over 1 + 1.
    assert total([Variance(2.0, 4.0), Variance(3.0, 9.0), Variance(5.0)]) == Variance(10.0, 50.0)
    assert total([Variance(2.0), Variance(3.0)]) == Variance(5.0, None)
    assert total([Variance(0.0, 3.0)]) == Variance(0.0, None)
    assert total([]) == Variance(0.0, None)
    assert Variance(2.0, 3.0).scaled(4.0) == Variance(8.0, 3.0)
    assert Variance(2.0).scaled(4.0) == Variance(8.0, None)


def test_octaves_end_with_the_series() -> None:
    assert list(_allan(PowerSeries(np.array([1.0]), 2.0))) == []
    (only,) = _allan(PowerSeries(np.array([1.0, 2.0, 4.0]), 2.0))  # four points: two groups of two do not fit
    assert only == pytest.approx((2.0, (1 + 4) / 4, (9 / 2 - 4 / 4) * 4 / 9))
    assert [tau for tau, _, _ in _allan(PowerSeries(np.arange(32.0), 0.5))] == [0.5, 1, 2, 4, 8]
    ramp = list(_allan(PowerSeries(100 + 3 * np.arange(32.0), 0.5)))
    assert [variance for _, variance, _ in ramp] == pytest.approx(
        [(3 * n) ** 2 / 2 for n in (1, 2, 4, 8, 16)]
    )


def slow_way(rows: list[tuple[float, float, float]]) -> tuple[float, float | None, float, float | None]:
    """Weighted least squares by its normal equations, written out, twenty times over."""
    mean = sum(y for _, y, _ in rows) / len(rows)
    expected = [mean] * len(rows)
    for _ in range(20):
        w = [count / (2 * e * e) for (_, _, count), e in zip(rows, expected, strict=True)]
        x = [1 / tau for tau, _, _ in rows]
        y = [variance for _, variance, _ in rows]
        sxx = sum(a * b * b for a, b in zip(w, x, strict=True))
        sx = sum(a * b for a, b in zip(w, x, strict=True))
        s1 = sum(w)
        sxy = sum(a * b * c for a, b, c in zip(w, x, y, strict=True))
        sy = sum(a * c for a, c in zip(w, y, strict=True))
        det = sxx * s1 - sx * sx
        white, slow = (s1 * sxy - sx * sy) / det, (sxx * sy - sx * sxy) / det
        of_white, of_slow = s1 / det, sxx / det
        if min(white, slow) < 0:
            if white > slow:
                white, slow, of_white, of_slow = sxy / sxx, 0.0, 1 / sxx, 0.0
            else:
                white, slow, of_white, of_slow = 0.0, sy / s1, 0.0, 1 / s1
        expected = [white * b + slow for b in x]
    dof = [max(1.0, 2 * v * v / u) if v > 0 else None for v, u in ((white, of_white), (slow, of_slow))]
    return white, dof[0], slow, dof[1]


@pytest.mark.parametrize(("walk", "trend"), [(0.0, 0.0), (0.4, 0.0), (0.05, 0.02), (2.0, 0.3), (0.15, 0.0)])
def test_the_fit_is_that_of_a_second_way(walk: float, trend: float) -> None:
    both, floored = set(), 0
    for seed in range(12):
        rng = np.random.default_rng([seed, round(100 * walk)])
        series = []
        for n, part_s in ((32, 0.25), (20, 0.5)):
            power = 5 + rng.normal(0, 0.3, n) + walk * np.cumsum(rng.normal(0, 0.3, n)) + trend * np.arange(n)
            series.append(PowerSeries(power, part_s))
        expected = slow_way([row for one in series for row in _allan(one)])
        found = slow_noise(series)
        for value, known in zip(
            (found.white.w2, found.white.dof, found.flicker.w2, found.flicker.dof), expected, strict=True
        ):
            assert value == (None if known is None else pytest.approx(known, rel=1e-6))
        both.add((found.white.w2 > 0, found.flicker.w2 > 0))
        floored += found.flicker.dof == 1.0 or found.white.dof == 1.0
    assert both
    if walk == 0.15:
        assert (True, True) in both
        assert floored


def test_a_constant_power_has_no_noise() -> None:
    found = slow_noise([PowerSeries(np.full(32, 0.7), 1.0), PowerSeries(np.full(32, 0.9), 1.0)])
    assert (found.white, found.flicker) == (Variance(0.0), Variance(0.0))


def test_noise_of_the_second_series_alone_is_seen() -> None:
    shaky = np.array([0.7, 0.8] * 16)
    found = slow_noise([PowerSeries(np.full(32, 0.7), 1.0), PowerSeries(shaky, 1.0)])
    assert found.white.w2 > 0
    assert found.flicker == Variance(0.0)


def test_neighbouring_means_differ_by_twice_the_allan_variance() -> None:
    for length in (1.0, 0.3, 500.0):
        spans = [(7.0, 7.0 + length), (7.0 + length, 7.0 + 2 * length)]
        assert flicker_factor(spans, (1.0, -1.0)) == pytest.approx(2.0)
        assert flicker_factor(spans, (0.5, -0.5)) == pytest.approx(0.5)


def test_means_apart_from_each_other_by_the_integral_itself() -> None:
    spans, weights = [(0.0, 2.0), (5.0, 6.0), (6.5, 10.0)], (-0.75, 1.0, -0.25)
    assert flicker_factor(spans, weights) == pytest.approx(flicker(spans, weights), rel=1e-12)
    # Two intervals of one second, two seconds between them: -(2 * -1.5 - 2 L), L the mean of ln|s - t|.
    grid = (np.arange(2000) + 0.5) / 2000
    far = float(np.mean(np.log(3.0 + grid[:, None] - grid)))
    expected = (3.0 + 2 * far) / (2 * math.log(2))
    assert flicker_factor([(0.0, 1.0), (3.0, 4.0)], (1.0, -1.0)) == pytest.approx(expected, rel=1e-6)
    assert flicker_factor([(0.0, 1.0), (3.0, 4.0)], (0.0, 0.0)) == 0.0
    # Rounding must not make a variance negative: the same interval twice has no difference.
    assert flicker_factor([(0.1, 1.4), (0.1, 1.4)], (1.0, -1.0)) == pytest.approx(0.0, abs=1e-12)
    assert flicker_factor([(0.0, 1.0), (2.0, 3.0)], (1.0, 1.0)) >= 0.0
