"""FedRank choosing 100 of very many probed devices, against a bare forward pass of its network.

The pass is the same float32 network on the same array, as plain numpy products over the whole array and as
torch modules; the faster of the two is the yardstick. One thread, CPU time, in turns. A decision also
normalises six features by two medians each and finds the exact K best.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.result import Figure, figure
from benchmarks.selector_decisions import K, fleet
from emulator.selectors import FedRank, device_states

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from numpy.typing import NDArray

    from emulator.selectors import Mlp

SIZES = (100_000, 1_000_000)
REPEATS = 7
BAR = 1.5


def run() -> list[Figure]:
    """Ratio of a decision to the faster bare pass, for each size."""
    with threadpool_limits(1):
        return [_figure(n) for n in SIZES]


def _figure(n: int) -> Figure:
    rng = np.random.default_rng(1)
    view = fleet(n).changed(
        eligible=np.ones(n, bool),
        loss=rng.lognormal(0.0, 0.5, n),
        epoch_j=rng.lognormal(2.0, 0.5, n),
        comm_j=rng.lognormal(1.0, 0.5, n),
    )
    ids = np.arange(n)
    selector = FedRank(online=False)
    network = selector.network
    state = device_states(view, ids)
    seconds = _in_turns(
        {
            "decision": lambda: selector.select(view, ids, K, np.random.default_rng(0)),
            "numpy": lambda: _plain(network, state),
            "torch": _torch_pass(network, state),
        }
    )
    bare = min(("numpy", "torch"), key=lambda name: np.median(seconds[name]))
    ratios = [a / b for a, b in zip(seconds["decision"], seconds[bare], strict=True)]
    ours_ms, bare_ms = (1e3 * float(np.median(seconds[name])) for name in ("decision", bare))
    note = f"{ours_ms:.3g} ms against {bare_ms:.3g} ms, {bare}"
    return figure(
        "fedrank_decision", f"FedRank, {K} of {n:,}", ratios, "x", better="lower", bar=BAR, note=note
    )


def _plain(network: Mlp, x: NDArray[np.float32]) -> NDArray[np.float32]:
    last = len(network.weights) - 1
    for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        x = x @ weight + bias
        if layer < last:
            x = np.maximum(x, 0.0)
    return x


def _torch_pass(network: Mlp, state: NDArray[np.float32]) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(1)
    layers: list[torch.nn.Module] = []
    for weight, bias in zip(network.weights, network.biases, strict=True):
        linear = torch.nn.Linear(*weight.shape)
        linear.weight.data = torch.from_numpy(weight.T.copy())
        linear.bias.data = torch.from_numpy(bias.copy())
        layers += [linear, torch.nn.ReLU(inplace=True)]
    model, x = torch.nn.Sequential(*layers[:-1]), torch.from_numpy(state)

    def forward() -> Any:
        with torch.inference_mode():
            return model(x)

    return forward


def _in_turns(work: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for repeat in range(REPEATS + 1):
        for name, do in work.items():
            start = time.process_time()
            do()
            if repeat:
                seconds[name].append(time.process_time() - start)
    return seconds
