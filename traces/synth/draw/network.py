"""Generated recordings of throughput: log-normal, an autoregression in time (`ThroughputModel`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from joulefleet.seeds import generator
from traces.model import InteractionTrace, NetworkKind, NetworkSpans, Throughput
from traces.synth.model import NetworkModel, ThroughputModel

RECORDINGS = 200
"""Of each kind."""
STEP_S = 5
SPAN_S = 3600
_KIND = {"ethernet": NetworkKind.ETHERNET, "3g": NetworkKind.CELLULAR_3G}


def network_traces(model: NetworkModel) -> Iterator[InteractionTrace]:
    """Recordings of an hour, `RECORDINGS` of each kind; always the same ones."""
    for kind in model.kinds:
        for number in range(RECORDINGS):
            yield _recording(kind, number, f"synthetic: network model {model.name} {model.sha256()[:12]}")


def _recording(kind: ThroughputModel, number: int, source: str) -> InteractionTrace:
    rng = generator(0, "network recording", kind.network, number)
    steps = SPAN_S // STEP_S
    keeps = np.exp(-STEP_S / kind.correlation_s)
    noise = rng.standard_normal(steps)
    noise[1:] *= np.sqrt(1 - keeps**2)
    x = np.empty(steps)
    x[0] = noise[0]
    for i in range(1, steps):
        x[i] = keeps * x[i - 1] + noise[i]
    log_mean = kind.log_mean + kind.between_log_sd * rng.standard_normal()
    t_ns = np.arange(steps, dtype=np.int64) * STEP_S * 10**9
    end_ns = SPAN_S * 10**9
    return InteractionTrace(
        f"{kind.network}-{number:03d}",
        0,
        end_ns,
        network=NetworkSpans(np.array([0]), np.array([end_ns]), np.array([_KIND[kind.network]])),
        throughput=Throughput(t_ns, np.exp(log_mean + kind.within_log_sd * x), np.full(steps, np.nan)),
        relative_time=True,
        source=source,
        licence="generated",
    )
