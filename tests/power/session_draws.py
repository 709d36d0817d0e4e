"""Draws energies of an epoch by session around a known truth, to judge intervals by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

TRUTH_J = 8.4


@dataclass(frozen=True)
class Lab:
    """How a device's energy scatters: standard deviations over the mean, and the shape of the deviations."""

    between: float
    within: float
    shape: str = "normal"
    warming: float = 0.0  # rise from the first to the last repetition of every session, over the mean
    slopes: float = 0.0  # standard deviation of such a rise that each session has of its own
    trend: float = 0.0  # rise from the first session to the last
    memory: float = 0.0  # correlation of a session with the one before
    step_j: float = 0.0  # resolution that values are rounded to


def deviations(rng: np.random.Generator, shape: str, size: tuple[int, int]) -> np.ndarray:
    """Deviations of mean 0 and standard deviation 1."""
    if shape == "normal":
        return rng.standard_normal(size)
    if shape == "student5":
        return rng.standard_t(5, size) / np.sqrt(5 / 3)
    sigma = {"skewed": 0.5, "very skewed": 1.0}[shape]  # lognormal: skewness 1.75 and 6.2
    mean, variance = np.exp(sigma**2 / 2), (np.exp(sigma**2) - 1) * np.exp(sigma**2)
    return (rng.lognormal(0, sigma, size) - mean) / np.sqrt(variance)


def session_offsets(rng: np.random.Generator, lab: Lab, draws: int, sessions: int) -> np.ndarray:
    offsets = deviations(rng, lab.shape, (draws, sessions))
    for later in range(1, sessions) if lab.memory else ():
        fresh = np.sqrt(1 - lab.memory**2) * offsets[:, later]
        offsets[:, later] = lab.memory * offsets[:, later - 1] + fresh
    return lab.between * offsets + lab.trend * centred(sessions)


def centred(count: int) -> np.ndarray:
    """Evenly from -1/2 to 1/2, so that a drift leaves the mean of its stretch where it was."""
    return np.linspace(-0.5, 0.5, count) if count > 1 else np.zeros(1)


def draw(seed: list[int], lab: Lab, repetitions: tuple[int, ...], draws: int) -> Iterator[list[list[float]]]:
    """Gives `draws` studies; each has one list of joules per session, of the lengths `repetitions`."""
    rng = np.random.default_rng(seed)
    offsets = session_offsets(rng, lab, draws, len(repetitions))
    columns = []
    for session, count in enumerate(repetitions):
        rise = lab.warming + lab.slopes * rng.standard_normal((draws, 1))
        scatter = lab.within * deviations(rng, lab.shape, (draws, count)) + rise * centred(count)
        values = TRUTH_J * (1 + offsets[:, [session]] + scatter)
        if lab.step_j:
            values = np.round(values / lab.step_j) * lab.step_j
        columns.append(values.tolist())
    return (list(study) for study in zip(*columns, strict=True))


def draw_mixed(seed: int, draws: int, sessions: tuple[int, int] = (3, 10)) -> Iterator[list[list[float]]]:
    """Every study another device and plan: 0 to 5 % between, 0.2 to 3 % within, 2 to 10 repetitions."""
    rng = np.random.default_rng(seed)
    for index in range(draws):
        lab = Lab(rng.uniform(0, 0.05), rng.uniform(0.002, 0.03))
        count = int(rng.integers(sessions[0], sessions[1] + 1))
        repetitions = tuple(int(n) for n in rng.integers(2, 11, count))
        yield next(draw([seed, index], lab, repetitions, 1))
