"""What a device's next epoch will take, and how sure that is.

The logarithm of device i's seconds per sample at time t is taken as

    x_i(t) = r_i + b + u_i + w_i(t)

r_i what registration says, b how wrong registration is on average, u_i ~ N(0, s_u^2) how this device differs
for good, w_i how it is today: an autoregression with variance s_w^2 and correlation exp(-dt / memory). Given
b, s_u and s_w, the forecast is exact (a Kalman filter with two states a device and no error of measurement).
b, s_u and s_w are moments of all devices' reports: b and s_u^2 + s_w^2 are mean and variance of x_i - r_i in
first reports, and two reports of one device dt apart differ by 2 s_w^2 (1 - exp(-dt / memory)) in the mean
square. Each moment begins with `PRIOR` reports' worth of the values in `PRIOR_SD`.

How far forecasts were off, in units of their own standard deviation, is remembered: the last `ERRORS` of
them, normal quantiles at first, are what `draw` takes its errors from. So heavy tails, as apps in use make
them, are expected once they have been met.

The power of computing is the device's mean so far, shrunk to the fleet's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.round.view import Ids, ServerView

Array = NDArray[np.float64]

PRIOR = 10.0
PRIOR_SD = (0.2, 0.1)
"""s_u and s_w before anything was reported."""
ERRORS = 256
TRUSTED = 2.0
"""Reports of its own at which a device's mean power counts as much as the fleet's."""


class CostForecast:
    """Forecasts for a fleet; grows with the reports.

    Args:
        devices: How many.
        memory_s: After so long, how a device was has lost all but 1/e of its meaning.
    """

    def __init__(self, devices: int, memory_s: float) -> None:
        self._memory_s = memory_s
        self._mean = np.zeros((devices, 2))  # of u and w
        self._cov = np.zeros((devices, 3))  # of u, of both, of w; for devices that have reported
        self._seen_s = np.full(devices, np.nan)
        self._last = np.zeros(devices)  # x_i - r_i as last reported
        self._power = np.zeros((devices, 2))  # reports, sum of log power
        u, w = PRIOR_SD
        self._first = np.array([PRIOR, 0.0, PRIOR * (u * u + w * w)])  # count, sum, sum of squares
        self._pairs = np.array([PRIOR * w * w, PRIOR])
        self._fleet_power = np.array([0.0, 0.0])
        from scipy.special import ndtri  # lists of selectors load this module

        self._errors = ndtri((np.arange(ERRORS) + 0.5) / ERRORS)
        self._next_error = 0

    def epoch(self, view: ServerView, devices: Ids) -> tuple[Array, Array]:
        """Mean and standard deviation of the logarithm of the duration of an epoch."""
        mean, variance = self._expected(view.now_ns * 1e-9, devices)
        return mean + _registered(view)[devices], np.sqrt(variance)

    def power_w(self, devices: Ids) -> Array:
        """Power of computing; 1 where nobody has reported any, so that energy goes with time."""
        count, total = self._power[devices].T
        fleet = self._fleet_power[1] / max(self._fleet_power[0], 1.0)
        return np.asarray(np.exp((total + TRUSTED * fleet) / (count + TRUSTED)))

    def draw(self, rng: np.random.Generator, mean: Array, sd: Array, times: int) -> Array:
        """Durations as they may turn out, a row each time."""
        errors = self._errors[rng.integers(ERRORS, size=(times, len(mean)))]
        return np.asarray(np.exp(mean + sd * errors))

    @property
    def spread(self) -> tuple[float, float]:
        """s_u and s_w."""
        count, total, squares = self._first
        today = self._pairs[0] / self._pairs[1]
        own = max(squares / count - (total / count) ** 2 - today, 1e-6)
        return float(np.sqrt(own)), float(np.sqrt(today))

    def observe(self, view: ServerView, devices: Ids, epoch_s: Array, epoch_j: Array) -> None:
        """Take reports in; what is no number above 0 says nothing."""
        known = np.isfinite(epoch_s) & (epoch_s > 0)
        devices, epoch_s, epoch_j = devices[known], epoch_s[known], epoch_j[known]
        now_s = view.now_ns * 1e-9
        off = np.log(epoch_s) - _registered(view)[devices]
        mean, variance = self._expected(now_s, devices)
        self._remember((off - mean) / np.sqrt(variance))
        self._learn(now_s, devices, off)
        self._update(now_s, devices, off)
        measured = np.isfinite(epoch_j) & (epoch_j > 0)
        power = np.log(epoch_j[measured] / epoch_s[measured])
        self._power[devices[measured]] += np.column_stack([np.ones(len(power)), power])
        self._fleet_power += (len(power), power.sum())

    def _prior(self, now_s: float, devices: Ids) -> tuple[Array, Array]:
        """Means and covariances of u and w now, before a report."""
        own, today = self.spread
        new = np.isnan(self._seen_s[devices])
        r = np.where(new, 0.0, np.exp(-(now_s - self._seen_s[devices]) / self._memory_s))
        mean = self._mean[devices] * np.column_stack([np.ones(len(r)), r])
        cov = self._cov[devices] * np.column_stack([np.ones(len(r)), r, r * r])
        cov[:, 2] += today * today * (1 - r * r)
        cov[new, 0] = own * own
        return mean, cov

    def _expected(self, now_s: float, devices: Ids) -> tuple[Array, Array]:
        mean, cov = self._prior(now_s, devices)
        bias = self._first[1] / self._first[0]
        variance = cov[:, 0] + 2 * cov[:, 1] + cov[:, 2]
        return bias + mean.sum(1), np.maximum(variance, 1e-6)

    def _update(self, now_s: float, devices: Ids, off: Array) -> None:
        mean, cov = self._prior(now_s, devices)
        both = np.column_stack([cov[:, 0] + cov[:, 1], cov[:, 1] + cov[:, 2]])  # with their sum
        variance = np.maximum(both.sum(1), 1e-12)
        gain = both / variance[:, np.newaxis]
        left = off - self._first[1] / self._first[0] - mean.sum(1)
        self._mean[devices] = mean + gain * left[:, np.newaxis]
        taken = np.column_stack([gain[:, 0] * both[:, 0], gain[:, 0] * both[:, 1], gain[:, 1] * both[:, 1]])
        self._cov[devices] = cov - taken
        self._seen_s[devices], self._last[devices] = now_s, off

    def _learn(self, now_s: float, devices: Ids, off: Array) -> None:
        new = np.isnan(self._seen_s[devices])
        first = off[new]
        self._first += (len(first), first.sum(), (first * first).sum())
        again = devices[~new]
        change = off[~new] - self._last[again]
        expected = -2 * np.expm1(-(now_s - self._seen_s[again]) / self._memory_s)
        self._pairs += ((change * change).sum(), expected.sum())

    def _remember(self, errors: Array) -> None:
        for error in errors[-ERRORS:]:
            self._errors[self._next_error % ERRORS] = error
            self._next_error += 1

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        arrays = {
            name: values.copy() for name, values in vars(self).items() if isinstance(values, np.ndarray)
        }
        return {**arrays, "_next_error": self._next_error}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        for name, values in state.items():
            setattr(self, name, values.copy() if isinstance(values, np.ndarray) else values)


def _registered(view: ServerView) -> Array:
    """Logarithm of the duration of an epoch as registered; of odd values that of a usual device."""
    capability = view.capability_s
    odd = ~(np.isfinite(capability) & (capability > 0))
    if not odd.any():
        return np.log(capability)
    usual = float(np.median(capability[~odd])) if not odd.all() else 1.0
    return np.log(np.where(odd, usual, capability))
