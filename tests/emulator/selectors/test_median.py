"""The median by way of a sample is the partition's, whatever the numbers are like."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from emulator.selectors.neural import normalise
from emulator.selectors.neural.normalise import lower_median

KINDS: dict[str, Callable[[Generator, int], NDArray[np.float64]]] = {
    "skewed": lambda rng, n: rng.lognormal(2.0, 1.5, n),
    "few values": lambda rng, n: rng.integers(0, 3, n).astype(float),
    "one value": lambda _, n: np.full(n, 7.0),
    "two lumps": lambda rng, n: np.where(rng.random(n) < 0.5, 1.0, 1e9) * rng.random(n),
    "rising": lambda _, n: np.arange(n, dtype=float),
    "falling": lambda _, n: np.arange(n, dtype=float)[::-1],
    "infinite": lambda rng, n: np.where(rng.random(n) < 0.4, np.inf, rng.random(n)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 999, normalise._MANY - 1, normalise._MANY, normalise._MANY + 1, 100_003])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_sorting(kind: str, n: int, dtype: type[np.floating]) -> None:
    for seed in range(3):
        x = KINDS[kind](default_rng(seed), n).astype(dtype)
        assert lower_median(x) == np.sort(x)[(n - 1) // 2]


def test_a_sample_that_misleads_changes_nothing() -> None:
    n = 100_000
    x = default_rng(0).random(n)
    # Every number that the sample sees is larger than all the others.
    x[:: n // normalise._SAMPLE] += 10.0
    low, _ = normalise._limits(x)
    assert low > np.median(x)
    assert lower_median(x) == np.sort(x)[(n - 1) // 2]


def test_only_a_few_are_partitioned(monkeypatch: pytest.MonkeyPatch) -> None:
    x = default_rng(1).lognormal(0.0, 1.0, 100_000)
    sizes = []
    partition = np.partition

    def counting(values: NDArray[np.floating], place: int) -> NDArray[np.floating]:
        sizes.append(len(values))
        return partition(values, place)

    monkeypatch.setattr(normalise.np, "partition", counting)
    lower_median(x)
    assert len(sizes) == 1
    assert sizes[0] < len(x) / 8
