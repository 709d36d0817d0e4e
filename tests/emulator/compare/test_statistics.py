"""The paired statistics against scipy's and against worked examples."""

import numpy as np
import pytest
from numpy.random import default_rng
from scipy import stats

from emulator.compare.statistics import bootstrap_mean, cliffs_delta, holm, interquartile_mean, permutation_p


@pytest.mark.parametrize("seed", range(4))
def test_bootstrap_interval_is_scipys_up_to_resampling(seed: int) -> None:
    values = default_rng(seed).gamma(1.0, size=12)
    own = bootstrap_mean(values)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="BCa", rng=default_rng(0))
    width = theirs.confidence_interval.high - theirs.confidence_interval.low
    assert own.mean == pytest.approx(values.mean())
    assert own.low == pytest.approx(theirs.confidence_interval.low, abs=0.05 * width)
    assert own.high == pytest.approx(theirs.confidence_interval.high, abs=0.05 * width)


def test_bootstrap_of_too_little() -> None:
    assert np.isnan(bootstrap_mean(np.array([1.0])).low)
    assert np.isnan(bootstrap_mean(np.array([])).mean)
    assert bootstrap_mean(np.full(5, 2.0)).high == 2.0


def test_bootstrap_of_values_that_differ_by_their_last_bit() -> None:
    """A method that always picks the same devices costs the same in every run, up to the order of a sum."""
    values = np.full(10, 0.0645)
    values[3] = np.nextafter(0.0645, 1.0)
    found = bootstrap_mean(values)
    assert found.low == pytest.approx(0.0645, rel=1e-12)
    assert found.high == pytest.approx(0.0645, rel=1e-12)


def test_bootstrap_coverage(campaign_count) -> None:
    """Right about 95 % of the time for a skewed distribution of 20 values; a little less is known of BCa."""
    trials = campaign_count(200, 2000)
    hits = 0
    for trial in range(trials):
        found = bootstrap_mean(default_rng(trial).gamma(4.0, size=20), resamples=1000)
        hits += found.low <= 4.0 <= found.high
    assert 0.88 <= hits / trials <= 0.985


@pytest.mark.parametrize("n", [6, 10])
def test_exact_permutation_is_scipys(n: int) -> None:
    differences = default_rng(n).normal(0.4, 1.0, n)
    theirs = stats.permutation_test(
        (differences, np.zeros(n)),
        lambda a, b, axis: (a - b).mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )
    assert permutation_p(differences) == pytest.approx(theirs.pvalue, abs=1e-9)


def test_random_permutation_is_near_the_exact_one_and_never_zero() -> None:
    differences = default_rng(1).normal(0.3, 1.0, 16)
    theirs = stats.permutation_test(
        (differences, np.zeros(16)),
        lambda a, b, axis: (a - b).mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )
    assert permutation_p(differences) == pytest.approx(theirs.pvalue, abs=0.02)
    assert permutation_p(np.ones(30)) > 0


def test_permutation_without_differences() -> None:
    assert permutation_p(np.zeros(7)) == 1.0
    assert permutation_p(np.array([np.nan])) == 1.0


def test_holm_worked_example() -> None:
    # Sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1, then never below an earlier one.
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([]) == []


def test_cliffs_delta() -> None:
    assert cliffs_delta(np.array([3.0, 4.0]), np.array([1.0, 2.0])) == 1.0
    assert cliffs_delta(np.array([1.0, 3.0]), np.array([2.0])) == 0.0


def test_interquartile_mean_is_the_trimmed_mean_where_the_quarters_are_whole() -> None:
    values = default_rng(2).normal(size=12)
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25))
    assert interquartile_mean(np.array([1.0, 2.0, 30.0])) == pytest.approx((0.25 * 31 + 2.0) / 1.5)
