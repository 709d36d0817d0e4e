"""Time and memory of one decision among many devices, against plain numpy on the same arrays.

The yardstick of a method is its own scoring arithmetic in numpy plus ``argpartition``, in the same run, with
candidates handed over as the engine does. Beside it the floors of a method that looks at everybody: the top K
of one column by ``argpartition``, and memory itself, one column copied. CPU time of one process; four fifths
of the devices are eligible, half of them have reported before.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.result import Figure, figure
from emulator import Selector, ServerView
from emulator.round import ALWAYS_SHOWN, VIEW_FIELDS
from emulator.selectors import ActiveFederatedLearning, FedAvg, Oort, RandomBySize, TiFL

NAME = "selector_decisions"
SIZES = (100_000, 1_000_000)
K = 100
REPEATS = 9
COPIES = 20
BAR = 3.0
LOW: dict[str, Any] = {"better": "lower"}
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Contest:
    """A selector in the middle of a run, and the arithmetic it cannot do without."""

    selector: Selector
    yardstick: Callable[[ServerView, NDArray[np.int64], np.random.Generator], Floats]


def run() -> list[Figure]:
    """Ratio of times, and memory per device, for each method and size."""
    figures = []
    for n in SIZES:
        view = fleet(n)
        figures += floors(n)
        for name, contest in contests(view).items():
            ours_s, plain_s, top_s = times(contest, view)
            note = f"{1e3 * min(ours_s):.3g} ms against {1e3 * min(plain_s):.3g} ms"
            label = f"{name}, {K} of {n:,}"
            peak = peak_bytes(contest, view) / n
            figures += [
                figure(NAME, f"{label}: time", over(ours_s, plain_s), "x", bar=BAR, note=note, **LOW),
                figure(NAME, f"{label}: time over a bare top K", over(ours_s, top_s), "x", **LOW),
                figure(NAME, f"{label}: memory", [peak], "B/device", **LOW),
            ]
    return figures


def over(these_s: list[float], those_s: list[float]) -> list[float]:
    """Ratios of what was measured in turns."""
    return [a / b for a, b in zip(these_s, those_s, strict=True)]


def floors(n: int) -> list[Figure]:
    """What numpy's top K of a column takes, and copying the column, without anything around it."""
    column = np.random.default_rng(0).random(n)
    target = np.empty_like(column)
    top_ms, copy_ms = [], []
    for _ in range(REPEATS):
        top_ms.append(1e3 * cpu_s(lambda: np.argpartition(column, K)[:K]))
        copy_ms.append(1e3 * cpu_s(lambda: copy(column, target)) / COPIES)
    rate = f"{16 * n / float(np.median(copy_ms)) / 1e6:.3g} GB/s read and written"
    return [
        figure(NAME, f"floor: numpy's top {K} of {n:,}", top_ms, "ms CPU", **LOW),
        figure(NAME, f"floor: copy of one column of {n:,}", copy_ms, "ms CPU", note=rate, **LOW),
    ]


def fleet(n: int) -> ServerView:
    """A view in the middle of a run."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Floats] = dict.fromkeys(VIEW_FIELDS - ALWAYS_SHOWN, np.broadcast_to(np.nan, n))
    arrays["bias_delta"] = arrays["label_histogram"] = np.broadcast_to(np.nan, (n, 10))
    epoch_s = rng.lognormal(1.0, 0.7, n)
    heard = rng.random(n) < 0.5
    arrays |= {
        "epoch_s": epoch_s,
        "capability_s": epoch_s * rng.lognormal(0.0, 0.3, n),
        "comm_s": rng.lognormal(0.0, 0.5, n),
        "failures": np.zeros(n),
        "global_loss": np.where(heard, rng.lognormal(0.0, 0.3, n), np.nan),
        "loss_rms": np.where(heard, rng.lognormal(0.0, 0.3, n), np.nan),
    }
    return ServerView(
        round=30,
        rounds=50,
        now_ns=0,
        k=K,
        local_epochs=5,
        time_budget_s=60.0,
        energy_budget_j=1e4,
        eligible=rng.random(n) < 0.8,
        data_size=rng.integers(1, 1200, n),
        **cast("dict[str, Any]", arrays),
    )


def contests(view: ServerView) -> dict[str, Contest]:
    """Every method with its yardstick."""
    return {
        "random": Contest(FedAvg(), uniform),
        "random by size": Contest(RandomBySize(), by_size),
        "AFL": Contest(_afl(view), afl),
        "TiFL": Contest(TiFL(), tifl),
        "Oort": Contest(_oort(view, "paper"), oort),
        "Oort official": Contest(_oort(view, "official"), oort),
    }


def _afl(view: ServerView) -> Selector:
    selector = ActiveFederatedLearning()
    selector.first_loss = float(np.nanmean(view.global_loss))
    return selector


def _oort(view: ServerView, mode: str) -> Selector:
    selector = Oort(mode=mode)
    selector._register(view)
    heard = np.flatnonzero(~np.isnan(view.loss_rms))
    utility = view.data_size[heard] * view.loss_rms[heard]
    duration_s = view.comm_s[heard] + view.local_epochs * view.epoch_s[heard]
    selector.rules.arms.feed_back(heard, utility, duration_s, 29)
    selector.rules.calls, selector.rules.exploration = 28, 0.5
    return selector


def uniform(view: ServerView, ids: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """A random number for each."""
    return rng.random(len(ids))


def by_size(view: ServerView, ids: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """Keys of a weighted draw."""
    return np.log(view.data_size[ids]) - np.log(rng.standard_exponential(len(ids)))


def afl(view: ServerView, ids: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """Valuations and their weights."""
    value = np.sqrt(view.data_size[ids]) * np.nan_to_num(view.global_loss[ids])
    return np.exp(0.01 * value)


def tifl(view: ServerView, ids: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """Latencies."""
    return -(view.comm_s[ids] + 5 * view.epoch_s[ids])


def oort(view: ServerView, ids: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """Utilities, the uncertainty term and the penalty."""
    utility = view.data_size[ids] * np.nan_to_num(view.loss_rms[ids])
    duration_s = view.comm_s[ids] + 5 * view.epoch_s[ids]
    low, high = utility.min(), utility.max()
    score = (np.minimum(utility, np.quantile(utility, 0.95)) - low) / (high - low)
    score += np.sqrt(0.1 * np.log(30) / np.full(len(ids), 29.0))
    preferred_s = np.quantile(duration_s, 0.3)
    return np.asarray(score * np.where(duration_s > preferred_s, (preferred_s / duration_s) ** 2, 1.0))


def plain(contest: Contest, view: ServerView, seed: int) -> NDArray[np.int64]:
    """Score and take the K best."""
    ids = view.eligible_ids
    score = contest.yardstick(view, ids, np.random.default_rng(seed))
    return ids[np.argpartition(-score, K)[:K]]


def decide(contest: Contest, view: ServerView, seed: int) -> NDArray[np.int64]:
    """A decision as the engine asks for it."""
    rng = np.random.default_rng(seed)
    return contest.selector.select(view, contest.selector.candidates(view, 3 * K, rng), K, rng)


def top_k(contest: Contest, view: ServerView, seed: int) -> NDArray[np.int64]:
    """The K largest of a column that is there already."""
    return np.argpartition(view.data_size, -K)[-K:]


def copy(column: Floats, target: Floats) -> None:
    """Several times: one alone is too short for the clock."""
    for _ in range(COPIES):
        np.copyto(target, column)


def times(contest: Contest, view: ServerView) -> tuple[list[float], list[float], list[float]]:
    """CPU seconds of all three, in turns; the first decision, which sets things up, is not counted."""
    decide(contest, view, 0)
    measured: tuple[list[float], list[float], list[float]] = ([], [], [])
    for seed in range(1, REPEATS + 1):
        for which, do in enumerate((decide, plain, top_k)):
            measured[which].append(cpu_s(partial(do, contest, view, seed)))
    return measured


def cpu_s(work: Callable[[], object]) -> float:
    """CPU time of some work."""
    start_s = time.process_time()
    work()
    return time.process_time() - start_s


def peak_bytes(contest: Contest, view: ServerView) -> int:
    """What a decision allocates at most at a time."""
    tracemalloc.start()
    decide(contest, view, 99)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
