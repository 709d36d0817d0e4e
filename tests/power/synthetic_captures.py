"""Synthetic captures with a known truth, for judging the error bar. Shares no code with the estimator.

A device idles, works in `REPEATS` windows with a rest between them, and idles again. Its current is a sum of
levels and rectangular bursts, so the true energy is a finite sum, not an integral over samples. The
instrument then gets it wrong in the ways that instruments do: gain and offset that stay for the whole
capture and differ by range, white and 1/f noise, ADC steps, losses in clusters, and a clock that is off.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

RATE_HZ = 1000
IDLE_S, WORK_S, REST_S, REPEATS = 10.0, 4.0, 1.0, 5
SUPPLY_V = 4.0
RANGE_BOUND_A = 0.25
ADC_STEP_A, ADC_STEP_V = 1e-4, 2.5e-4
BURSTS, BURST_A, BURST_S = 40, 0.2, 0.010  # per window; mean of exponential amplitude and duration
IDLE_BURST_HZ, IDLE_BURST_A, IDLE_BURST_S = 2.0, 0.05, 0.020
Z95 = 1.959964


@dataclass(frozen=True)
class Limits:
    """95 % limits of the instrument's errors, as its data sheet would state them."""

    gain: tuple[float, float]
    offset_a: tuple[float, float]
    voltage_gain: float
    voltage_offset_v: float


@dataclass
class SyntheticCapture:
    """What the estimator sees, and below it what is true."""

    current_a: np.ndarray
    voltage_v: np.ndarray
    kept: np.ndarray  # whether each sample reached the host
    limits: Limits
    sync_uncertainty_s: float
    windows_s: list[tuple[float, float]]  # as the estimator is told: off by the clock's error
    idle_before_s: tuple[float, float]
    idle_after_s: tuple[float, float]

    true_window_j: list[float] = field(default_factory=list)
    true_idle_w: list[float] = field(default_factory=list)  # expected idle power during each window
    expected_j: float = 0.0  # the mean over ever more repetitions
    expected_net_j: float = 0.0
    oracle_gross_j: float = 0.0  # half width of an estimator that knows every standard deviation
    oracle_net_j: float = 0.0


@dataclass(frozen=True)
class _Rectangles:
    """Current as a sum of rectangles (start, end, height): integrals and values without sampling."""

    start_s: np.ndarray
    end_s: np.ndarray
    height_a: np.ndarray

    def charge(self, from_s: float, to_s: float) -> float:
        overlap = np.minimum(self.end_s, to_s) - np.maximum(self.start_s, from_s)
        return float(np.clip(overlap, 0, None) @ self.height_a)

    def at(self, n: int) -> np.ndarray:
        edges = np.zeros(n + 1)
        first = np.clip(np.ceil(self.start_s * RATE_HZ), 0, n).astype(int)
        last = np.clip(np.ceil(self.end_s * RATE_HZ), 0, n).astype(int)
        np.add.at(edges, first, self.height_a)
        np.add.at(edges, last, -self.height_a)
        return np.cumsum(edges[:-1])


@dataclass(frozen=True)
class _Warming:
    """A device that warms up or cools down: its idle current approaches another value."""

    change_a: float
    tau_s: float

    def at(self, t_s: np.ndarray) -> np.ndarray:
        return self.change_a * (1 - np.exp(-t_s / self.tau_s))

    def charge(self, from_s: float, to_s: float) -> float:
        rest = self.tau_s * (np.exp(-from_s / self.tau_s) - np.exp(-to_s / self.tau_s))
        return float(self.change_a * (to_s - from_s - rest))


def draw(rng: np.random.Generator, *, uniform_errors: bool = False) -> SyntheticCapture:
    """One capture. ``uniform_errors`` draws gain and offset evenly within the limits instead of normally."""
    total_s = 2 * IDLE_S + REPEATS * WORK_S + (REPEATS + 1) * REST_S
    n = int(total_s * RATE_HZ)
    t_s = np.arange(n) / RATE_HZ
    starts_s = IDLE_S + REST_S + np.arange(REPEATS) * (WORK_S + REST_S) + rng.uniform(0, 1 / RATE_HZ)

    idle_a = rng.uniform(0.05, 0.2)
    drift = _Warming(idle_a * rng.uniform(-0.05, 0.05), 10 ** rng.uniform(np.log10(3), np.log10(300)))
    work_a = rng.uniform(0.3, 1.0)
    repeat_sd = 10 ** rng.uniform(np.log10(0.002), np.log10(0.03))
    levels = work_a * (1 + repeat_sd * (rng.gamma(4.0, 1.0, REPEATS) - 4.0) / 2.0)  # skewed, mean 1
    signal = _load(rng, total_s, starts_s, levels, idle_a)
    current = signal.at(n) + drift.at(t_s)

    # Truth. Idle power goes on under the work: it drifts, and its bursts are taken at their mean.
    idle_mean_a = idle_a + IDLE_BURST_HZ * IDLE_BURST_A * IDLE_BURST_S
    drift_c = np.array([drift.charge(s, s + WORK_S) for s in starts_s])
    window_c = drift_c + [signal.charge(s, s + WORK_S) for s in starts_s]
    idle_w = SUPPLY_V * (idle_mean_a + drift_c / WORK_S)
    expected_j = SUPPLY_V * (work_a * WORK_S + BURSTS * BURST_A * BURST_S + drift_c.mean())

    # The instrument.
    limits = _limits(rng)
    errors = _Errors.draw(rng, limits, uniform=uniform_errors)
    white_a = 10 ** rng.uniform(-3.5, -2.5)
    flicker_a = 10 ** rng.uniform(-4.5, -2.8)
    flicker, spectrum = _flicker(rng, n, flicker_a)
    in_upper = np.abs(current) > RANGE_BOUND_A
    gain = np.where(in_upper, errors.gain[1], errors.gain[0])
    offset = np.where(in_upper, errors.offset_a[1], errors.offset_a[0])
    measured_a = current * (1 + gain) + offset + flicker + rng.normal(0, white_a, n)
    measured_v = SUPPLY_V * (1 + errors.voltage_gain) + errors.voltage_offset_v + rng.normal(0, 1e-3, n)

    sync_s = 10 ** rng.uniform(np.log10(2e-4), np.log10(0.05))
    off_s = rng.normal(0, sync_s)
    capture = SyntheticCapture(
        current_a=np.round(measured_a / ADC_STEP_A) * ADC_STEP_A,
        voltage_v=np.round(measured_v / ADC_STEP_V) * ADC_STEP_V,
        kept=_kept(rng, n),
        limits=limits,
        sync_uncertainty_s=sync_s,
        windows_s=[(s + off_s, s + WORK_S + off_s) for s in starts_s],
        idle_before_s=(0.5 + off_s, IDLE_S - 0.5 + off_s),
        idle_after_s=(total_s - IDLE_S + 0.5 + off_s, total_s - 0.5 + off_s),
        true_window_j=(SUPPLY_V * window_c).tolist(),
        true_idle_w=idle_w.tolist(),
        expected_j=expected_j,
        expected_net_j=expected_j - float(idle_w.mean()) * WORK_S,
    )
    _let_the_oracle_speak(capture, current, starts_s, work_a, idle_mean_a, repeat_sd, white_a, spectrum)
    return capture


def _load(rng, total_s, starts_s, levels, idle_a) -> _Rectangles:
    """Idle with its bursts outside the windows, a level and its bursts inside each."""
    bounds = [0.0, *(x for s in starts_s for x in (s, s + WORK_S)), total_s]
    parts = [([a], [b], [idle_a]) for a, b in zip(bounds[::2], bounds[1::2], strict=True)]
    count = rng.poisson(IDLE_BURST_HZ * total_s)
    start = rng.uniform(0, total_s, count)
    inside = ((start[:, None] > starts_s - 0.5) & (start[:, None] < starts_s + WORK_S)).any(axis=1)
    start = start[~inside]
    parts.append(
        (start, start + rng.exponential(IDLE_BURST_S, len(start)), rng.exponential(IDLE_BURST_A, len(start)))
    )
    for s, level in zip(starts_s, levels, strict=True):
        length = rng.exponential(BURST_S, BURSTS)
        begin = s + rng.uniform(0, WORK_S - length)
        parts.append(([s], [s + WORK_S], [level]))
        parts.append((begin, begin + length, rng.exponential(BURST_A, BURSTS)))
    return _Rectangles(*(np.concatenate([p[i] for p in parts]) for i in range(3)))


def _limits(rng: np.random.Generator) -> Limits:
    gain = 10 ** rng.uniform(-3, np.log10(0.02), 2)
    offset_a = (10 ** rng.uniform(-4.5, -3.5), 10 ** rng.uniform(-4, -2.5))
    return Limits(tuple(gain), offset_a, 10 ** rng.uniform(-4, -2.5), 10 ** rng.uniform(-3.5, -2.5))


@dataclass(frozen=True)
class _Errors:
    gain: np.ndarray
    offset_a: np.ndarray
    voltage_gain: float
    voltage_offset_v: float

    @classmethod
    def draw(cls, rng: np.random.Generator, limits: Limits, *, uniform: bool) -> _Errors:
        def error(limit):
            limit = np.asarray(limit)
            return rng.uniform(-limit, limit) if uniform else rng.normal(0, limit / Z95)

        return cls(
            error(limits.gain),
            error(limits.offset_a),
            float(error(limits.voltage_gain)),
            float(error(limits.voltage_offset_v)),
        )


def _flicker(rng: np.random.Generator, n: int, sd_a: float) -> tuple[np.ndarray, np.ndarray]:
    """1/f noise of standard deviation ``sd_a`` over the capture, and the variance of each frequency."""
    frequency = np.fft.rfftfreq(n)
    shape = np.concatenate(([0.0], 1 / frequency[1:]))
    variance = sd_a**2 * shape / shape.sum()
    real, imaginary = rng.normal(0, 1, (2, len(frequency)))
    coefficients = (real + 1j * imaginary) * np.sqrt(variance) * n / 2
    return np.fft.irfft(coefficients, n), variance


def _kept(rng: np.random.Generator, n: int) -> np.ndarray:
    """Losses come in clusters: a few short gaps close to each other, then nothing for seconds."""
    kept = np.ones(n, bool)
    for centre in rng.uniform(0.3 * RATE_HZ, n - 0.5 * RATE_HZ, rng.poisson(0.3 * n / RATE_HZ)):
        at = int(centre)
        for _ in range(1 + rng.poisson(2)):
            length = min(int(rng.geometric(0.15)), 40)
            kept[at : at + length] = False
            at += length + int(rng.integers(2, 30))
    kept[-2:] = True
    return kept


def _let_the_oracle_speak(
    capture, current, starts_s, work_a, idle_mean_a, repeat_sd, white_a, spectrum
) -> None:
    """Half widths of intervals whose every standard deviation is known. Losses cost the oracle nothing."""
    n = len(current)
    t_s = np.arange(n) / RATE_HZ
    in_work = ((t_s[:, None] >= starts_s) & (t_s[:, None] < starts_s + WORK_S)).any(axis=1)
    in_idle = (t_s < IDLE_S - 0.5) | (t_s > t_s[-1] - IDLE_S + 0.5)
    burst_c2 = BURSTS * ((2 * BURST_A**2) * (2 * BURST_S**2) - (BURST_A * BURST_S) ** 2)
    repeats = ((repeat_sd * work_a * WORK_S) ** 2 + burst_c2) * SUPPLY_V**2 / REPEATS
    clock = (capture.sync_uncertainty_s * SUPPLY_V * (work_a - idle_mean_a)) ** 2
    white = (SUPPLY_V * white_a) ** 2 * WORK_S / RATE_HZ / REPEATS
    idle_burst_c2 = IDLE_BURST_HZ * (2 * IDLE_BURST_A**2) * (2 * IDLE_BURST_S**2)
    idle = (SUPPLY_V * WORK_S) ** 2 * (
        idle_burst_c2 / (2 * IDLE_S - 2) + white_a**2 / RATE_HZ / (2 * IDLE_S - 2)
    )
    for net in (False, True):
        weight = in_work / in_work.sum() - (in_idle / in_idle.sum() if net else 0.0)
        transfer = np.abs(np.fft.rfft(weight)) ** 2
        flicker = (SUPPLY_V * WORK_S) ** 2 * float(spectrum @ transfer)
        variance = repeats + clock + white + flicker + _instrument(capture.limits, current, weight)
        half = Z95 * np.sqrt(variance + (idle if net else 0.0))
        if net:
            capture.oracle_net_j = half
        else:
            capture.oracle_gross_j = half


def _instrument(limits: Limits, current: np.ndarray, weight: np.ndarray) -> float:
    """Variance of the mean energy from gain and offset, by range."""
    upper = np.abs(current) > RANGE_BOUND_A
    total = 0.0
    for r, chosen in enumerate((~upper, upper)):
        charge = float((weight * current)[chosen].sum()) * WORK_S
        share = float(weight[chosen].sum()) * WORK_S
        total += (limits.gain[r] * SUPPLY_V * charge) ** 2 + (limits.offset_a[r] * SUPPLY_V * share) ** 2
    charge = float((weight * current).sum()) * WORK_S
    total += (limits.voltage_gain * SUPPLY_V * charge) ** 2 + (limits.voltage_offset_v * charge) ** 2
    return total / Z95**2
