"""The K best and the weighted draws, against slow definitions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.selectors.parts.draws import draw_uniform, draw_weighted, log_of, top_k
from emulator.selectors.parts.estimates import label_shares

few = st.sampled_from([0.0, -0.0, 1.0, 2.0, -math.inf, math.inf, math.nan])


@given(st.lists(few | st.floats(), max_size=30), st.integers(-1, 35))
@settings(max_examples=300, deadline=None)
def test_top_k_is_the_head_of_a_stable_sort(values: list[float], k: int) -> None:
    def key(i: int) -> tuple[bool, float, int]:
        return math.isnan(values[i]), 0.0 if math.isnan(values[i]) else -values[i], i

    expected = sorted(range(len(values)), key=key)[: max(k, 0)]
    assert top_k(np.array(values, dtype=np.float64), k).tolist() == expected


def test_top_k_takes_integers_and_single_precision() -> None:
    assert top_k(np.array([1, 3, 3, 2], dtype=np.float32), 3).tolist() == [1, 2, 3]
    assert top_k(np.array([1.0, 3.0]), 0).dtype == np.int64


def test_weighted_draws_have_the_law_of_successive_draws() -> None:
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    exact = {}
    for pair in itertools.permutations(range(4), 2):
        left = weights.sum() - weights[pair[0]]
        exact[pair] = weights[pair[0]] / weights.sum() * weights[pair[1]] / left
    rng, n = np.random.default_rng(0), 20_000
    counts = dict.fromkeys(exact, 0)
    for _ in range(n):
        counts[tuple(draw_weighted(rng, np.log(weights), 2).tolist())] += 1
    for pair, p in exact.items():
        assert counts[pair] / n == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / n))


def test_weights_of_any_range_can_be_drawn() -> None:
    rng = np.random.default_rng(0)
    assert draw_weighted(rng, np.array([-1e6, 1e6, 0.0]), 3).tolist() == [1, 2, 0]


def test_entries_without_weight_come_last() -> None:
    rng = np.random.default_rng(0)
    weights = log_of(np.array([0, 5, 0, 7, 0]))
    weights[4] = np.nan
    for _ in range(20):
        assert set(draw_weighted(rng, weights, 2).tolist()) == {1, 3}
    assert sorted(draw_weighted(rng, weights, 9).tolist()) == [0, 1, 2, 3, 4]
    last = {int(draw_weighted(rng, weights, 3)[2]) for _ in range(50)}
    assert last == {0, 2, 4}


def test_uniform_draws_stop_at_what_is_there() -> None:
    rng = np.random.default_rng(0)
    assert sorted(draw_uniform(rng, np.array([4, 9]), 5).tolist()) == [4, 9]
    assert draw_uniform(rng, np.empty(0, dtype=np.int64), 5).tolist() == []


def test_labels_are_guessed_from_rising_biases() -> None:
    shares = label_shares(np.array([[0.3, -0.1, 0.1], [np.nan] * 3, [-1.0, -1.0, 0.0]]))
    assert shares[0] == pytest.approx([0.75, 0.0, 0.25])
    assert shares[1:] == pytest.approx(np.full((2, 3), 1 / 3))
