"""Fit throughput: how fast networks are, how much recordings differ, and how long a rate lasts.

Recordings are read every `STEP_S`. A rate of 0 has no logarithm: such readings are left out, and the model
says how many they were.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from joulefleet.errors import DataQualityError
from traces.model import InteractionTrace, NetworkKind
from traces.replay.fleet import TraceQuery
from traces.synth.model import ModelSource, NetworkModel, ThroughputModel

STEP_S = 5
"""The FCC's readings are 5 s apart, the finest that both sets tell."""
LONGEST_LAG = 60
KINDS = {NetworkKind.ETHERNET: "ethernet", NetworkKind.CELLULAR_3G: "3g"}
Array = NDArray[np.float64]


def fit_networks(recordings: Sequence[InteractionTrace], source: ModelSource) -> NetworkModel:
    """Fit each kind of network on the recordings of it.

    Raises:
        DataQualityError: There are fewer than two of a kind.
    """
    return NetworkModel(name="default", kinds=tuple(_fit(kind, recordings, source) for kind in KINDS))


def _fit(kind: NetworkKind, recordings: Sequence[InteractionTrace], source: ModelSource) -> ThroughputModel:
    chosen = [one for one in recordings if one.network is not None and set(one.network.kind) == {kind}]
    if len(chosen) < 2:
        raise DataQualityError(f"{len(chosen)} recordings of {KINDS[kind]}: nothing to compare")
    rates = [_sampled(one) for one in chosen]
    logs = [np.log(np.where(rate > 0, rate, np.nan)) for rate in rates]
    means = np.array([np.nanmean(log) for log in logs])
    within = [log - mean for log, mean in zip(logs, means, strict=True)]
    variance = float(np.mean([np.nanvar(log) for log in logs]))
    zeros = sum(int((rate == 0).sum()) for rate in rates) / sum(len(rate) for rate in rates)
    evidence = source.model_copy(
        update={
            "users": len(chosen),
            "user_days": round(sum(one.span_ns for one in chosen) / 86_400e9, 2),
            "assumption": f"readings every {STEP_S} s; {100 * zeros:.2g} % of them were 0 and are left out",
        }
    )
    return ThroughputModel(
        network=KINDS[kind],
        log_mean=round(float(means.mean()), 3),
        between_log_sd=round(float(means.std(ddof=1)), 3),
        within_log_sd=round(math.sqrt(variance), 3),
        correlation_s=round(_lasting_s(within, variance), 1),
        evidence=evidence,
    )


def _sampled(recording: InteractionTrace) -> Array:
    """Rates at equal steps, those that are known."""
    times = np.arange(recording.start_ns, recording.end_ns, STEP_S * 10**9)
    rates = TraceQuery(recording).throughput_at(times).down_bps
    return rates[~np.isnan(rates)]


def _lasting_s(within: Sequence[Array], variance: float) -> float:
    """Where the autocorrelation, pooled over recordings, falls to 1/e; linear between lags."""
    before = 1.0
    for lag in range(1, LONGEST_LAG + 1):
        products = np.concatenate([log[:-lag] * log[lag:] for log in within if len(log) > lag])
        now = float(np.nanmean(products)) / variance
        if now <= math.exp(-1):
            return STEP_S * (lag - 1 + (before - math.exp(-1)) / (before - now))
        before = now
    return float(STEP_S * LONGEST_LAG)
