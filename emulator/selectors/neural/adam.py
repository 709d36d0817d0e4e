"""Adam (Kingma and Ba 2015) over a list of arrays, with a limit on the gradient's norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Adam:
    """Updates arrays in place.

    Args:
        parameters: What it updates; only their shapes are kept.
        rate: Learning rate.
        max_norm: Longer gradients are shortened to this; None for no limit.
    """

    BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8

    def __init__(
        self, parameters: Sequence[NDArray[np.float32]], rate: float, max_norm: float | None = 10.0
    ) -> None:
        self.rate = rate
        self.max_norm = max_norm
        self._steps = 0
        self._mean = [np.zeros_like(p) for p in parameters]
        self._square = [np.zeros_like(p) for p in parameters]

    def step(
        self, parameters: Sequence[NDArray[np.float32]], gradients: Sequence[NDArray[np.float32]]
    ) -> float:
        """One update; returns the norm of the gradient before it was limited."""
        norm = float(np.sqrt(sum(float(np.vdot(g, g)) for g in gradients)))
        scale = 1.0 if self.max_norm is None or norm <= self.max_norm else self.max_norm / norm
        self._steps += 1
        first, second = 1 - self.BETA1**self._steps, 1 - self.BETA2**self._steps
        for i, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
            slope = gradient * np.float32(scale)
            self._mean[i] += (1 - self.BETA1) * (slope - self._mean[i])
            self._square[i] += (1 - self.BETA2) * (slope * slope - self._square[i])
            size = np.sqrt(self._square[i] / second) + self.EPSILON
            np.subtract(parameter, (self.rate / first) * self._mean[i] / size, out=parameter)
        return norm

    def state_dict(self) -> dict[str, Any]:
        """Moments and the number of steps."""
        return {
            "steps": self._steps,
            "mean": [m.copy() for m in self._mean],
            "square": [s.copy() for s in self._square],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state from `state_dict`."""
        self._steps = int(state["steps"])
        self._mean = [np.array(m, np.float32) for m in state["mean"]]
        self._square = [np.array(s, np.float32) for s in state["square"]]
