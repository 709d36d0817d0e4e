"""The paired statistics against scipy's and against worked examples."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from numpy.random import default_rng
from scipy import stats

from emulator.compare.statistics import cliffs_delta, holm, interquartile_mean, permutation_p, smallest_p
from joulefleet.interval import Scale, student_interval


@pytest.mark.parametrize("n", [3, 5, 12])
def test_the_interval_is_scipys_of_students_t(n: int) -> None:
    values = default_rng(n).gamma(1.0, size=n)
    own = student_interval(values)
    theirs = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (own.mean, own.low, own.high) == pytest.approx((values.mean(), theirs.low, theirs.high))


def test_the_interval_of_too_little() -> None:
    assert np.isnan(student_interval(np.array([1.0])).low)
    assert np.isnan(student_interval(np.array([])).mean)
    assert student_interval(np.full(5, 2.0)).high == 2.0


def test_the_interval_of_values_that_differ_by_their_last_bit() -> None:
    """A method that always picks the same devices costs the same in every run, up to the order of a sum."""
    values = np.full(10, 0.0645)
    values[3] = np.nextafter(0.0645, 1.0)
    found = student_interval(values)
    assert found.low == pytest.approx(0.0645, rel=1e-12)
    assert found.high == pytest.approx(0.0645, rel=1e-12)


def coverage(
    n: int,
    trials: int,
    draw: Callable[[np.random.Generator], np.ndarray],
    mean: float,
    scale: Scale = Scale.LINEAR,
) -> float:
    rng = default_rng(n)
    found = [student_interval(draw(rng), scale) for _ in range(trials)]
    return float(np.mean([one.low <= mean <= one.high for one in found]))


@pytest.mark.parametrize("n", [3, 5, 10, 20])
def test_the_interval_of_few_seeds_covers_what_it_says(n: int) -> None:
    """A percentile of resampled means, which never leaves the range of the values, covers 72 % at three."""
    trials = 4000  # the standard error of a share is 0.35 points
    assert coverage(n, trials, lambda rng: rng.normal(size=n), 0.0) == pytest.approx(0.95, abs=0.015)
    # What a skewed distribution takes away, which the legend of the tables says.
    assert 0.92 <= coverage(n, trials, lambda rng: rng.gamma(4.0, size=n), 4.0) <= 0.955
    assert 0.86 <= coverage(n, trials, lambda rng: rng.exponential(size=n), 1.0) <= 0.93


@pytest.mark.parametrize("n", [3, 5, 10, 20])
def test_the_scale_of_a_quantity_covers_at_least_as_much(n: int) -> None:
    """What cannot be negative, and shares: normal with a spread of 10 %, and skewed."""
    trials, log = 4000, Scale.LOG
    assert coverage(n, trials, lambda rng: rng.normal(1.0, 0.1, n), 1.0, log) == pytest.approx(
        0.95, abs=0.015
    )
    assert 0.92 <= coverage(n, trials, lambda rng: rng.exponential(size=n), 1.0, log) <= 0.955
    assert 0.93 <= coverage(n, trials, lambda rng: rng.beta(7.7, 2.3, n), 0.77, Scale.LOGIT) <= 0.965
    assert 0.92 <= coverage(n, trials, lambda rng: rng.beta(19.0, 1.0, n), 0.95, Scale.LOGIT) <= 0.965


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


@pytest.mark.parametrize("n", [1, 3, 8, 14])
def test_exact_permutation_counts_every_sign_change(n: int) -> None:
    """Rounded differences, whose sums tie: as many as half of the sign changes give the observed sum."""
    differences = np.round(default_rng(n).normal(0.1, 0.3, n), 1)
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=n)))
    sums = np.abs(np.round(signs @ differences, 9))
    assert permutation_p(differences) == (sums >= round(abs(differences.sum()), 9)).mean()


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


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_sums_that_tie_on_paper_tie_in_any_unit(scale: float) -> None:
    """1, 2, 3, 4, 7 and 9 tenths make 26; to fall below the 20 observed takes more than 3 with a minus:
    none, 1, 2, 3 or 1 and 2 do not. In floats 1 + 2 - 3 tenths are not 0.
    """
    tenths = np.array([1, 2, -3, 4, 7, 9])
    assert permutation_p(tenths * 0.1 * scale) == pytest.approx(2 * 5 / 64)
    assert permutation_p(np.array([0.1, 0.2, -0.3]) * scale) == 1.0


def test_permutation_without_differences() -> None:
    assert permutation_p(np.zeros(7)) == 1.0
    assert permutation_p(np.array([np.nan])) == 1.0


def test_holm_worked_example() -> None:
    # Sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1, then never below an earlier one.
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([]) == []


@pytest.mark.parametrize(("pairs", "tests"), [(5, 1), (5, 4), (3, 9), (20, 4)])
def test_no_p_is_smaller_than_the_smallest(pairs: int, tests: int) -> None:
    """Differences of one sign in every pair, of all methods."""
    found = holm([permutation_p(np.arange(1.0, pairs + 1)) for _ in range(tests)])
    assert min(found) == pytest.approx(smallest_p(pairs, tests))


def test_cliffs_delta() -> None:
    assert cliffs_delta(np.array([3.0, 4.0]), np.array([1.0, 2.0])) == 1.0
    assert cliffs_delta(np.array([1.0, 3.0]), np.array([2.0])) == 0.0


def test_interquartile_mean_is_the_trimmed_mean_where_the_quarters_are_whole() -> None:
    values = default_rng(2).normal(size=12)
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25))
    assert interquartile_mean(np.array([1.0, 2.0, 30.0])) == pytest.approx((0.25 * 31 + 2.0) / 1.5)
