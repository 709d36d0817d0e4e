"""A load behind a regulator: a step of 1 A has come to 1 - exp(-t / tau) after t, however it is cut."""

import numpy as np
import pytest
from numpy.typing import NDArray

from power.emulated.signals import Regulated

PERIOD_NS, TAU_S = 200_000, 0.004


class Step:
    """Nothing for 10 samples, then 1 A."""

    def sample(self, t_ns: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return (t_ns >= 10 * PERIOD_NS).astype(np.float64), np.full(len(t_ns), 4.0)


@pytest.mark.parametrize("cuts", [[10], [10, 11, 35]])
def test_a_step_behind_a_regulator(cuts: list[int]) -> None:
    parts = np.split(np.arange(60, dtype=np.int64) * PERIOD_NS, cuts)
    load = Regulated(Step(), tau_s=TAU_S)
    sampled = [load.sample(part) for part in parts]
    current_a, voltage_v = (np.concatenate([one[i] for one in sampled]) for i in range(2))
    since_s = (np.arange(60) - 9) * PERIOD_NS * 1e-9
    assert current_a == pytest.approx(np.where(since_s > 0, 1 - np.exp(-since_s / TAU_S), 0.0), abs=1e-12)
    assert set(voltage_v) == {4.0}
