"""What a bench's emulated meters really saw, and what an estimator that knows it would state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from device_agents.protocol import Phase
from harness.evidence.capture import Capture
from power.emulated.signals import read_truth


@dataclass(frozen=True)
class Truth:
    """The true load of one device over time, of all the times that its meter was plugged in."""

    t_ns: NDArray[np.int64]
    power_w: NDArray[np.float64]

    @classmethod
    def read(cls, files: Sequence[Path]) -> Truth:
        rows: list[NDArray[Any]] = [read_truth(path) for path in files]
        joined = np.concatenate(rows)
        order = np.argsort(joined["t_ns"], kind="stable")
        joined = joined[order]
        return cls(joined["t_ns"], joined["current_a"] * joined["voltage_v"])

    def energy_j(self, start_ns: int, end_ns: int) -> float:
        """Integral of the true power; the device shares this machine's clock, so its markers are exact."""
        inside = (self.t_ns > start_ns) & (self.t_ns < end_ns)
        edges = np.array([start_ns, end_ns])
        t = np.concatenate(([start_ns], self.t_ns[inside], [end_ns]))
        at_edges = np.interp(edges, self.t_ns, self.power_w)
        p = np.concatenate(([at_edges[0]], self.power_w[inside], [at_edges[1]]))
        return float(np.trapezoid(p, (t - start_ns) * 1e-9))


def true_epoch_j(capture: Capture, truth: Truth) -> float:
    """Mean energy of the epochs after the probe."""
    spans: dict[int, dict[str, int]] = {}
    for marker in capture.markers:
        if marker.kind is Phase.EPOCH and marker.epoch > 1:
            spans.setdefault(marker.epoch, {})[marker.edge] = marker.t_dev_ns
    energies = [truth.energy_j(span["start"], span["end"]) for span in spans.values()]
    return math.fsum(energies) / len(energies)


def knowing_half_width_j(means_j: Sequence[float]) -> float:
    """Student's 95 % interval over the true means of the repetitions: what no instrument can improve on."""
    n = len(means_j)
    return float(stdtrit(n - 1, 0.975)) * float(np.std(means_j, ddof=1)) / math.sqrt(n)
