"""Whether a cell has been measured often enough: the interval of its energy per epoch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from device_agents.protocol import Phase
from harness.capture import Capture, open_capture
from power.energy_index import EnergyIndex
from power.windows import DEFAULT_POLICY, Window


def energy_per_epoch_j(capture: Capture) -> float | None:
    """Mean gross energy of the epochs after the probe (of the probe, if it is alone); None if none is usable.

    Throttled epochs do not count.
    """
    record = capture.record
    first = min(2, record.local_epochs)
    windows = [
        Window(phase.start_ns, phase.end_ns)
        for phase in capture.phases()
        if phase.phase is Phase.EPOCH and phase.epoch >= first and phase.epoch not in record.throttled_epochs
    ]
    energies = EnergyIndex(capture.recording, DEFAULT_POLICY).integrate(windows)
    usable = [e.energy_j for e in energies if e.valid and e.energy_j is not None]
    return math.fsum(usable) / len(usable) if usable else None


def relative_half_width(means_j: Sequence[float]) -> float:
    """Half of Student's 95 % interval of the mean over repetitions, relative to the mean."""
    from scipy.special import stdtrit

    n = len(means_j)
    if n < 2:
        return math.inf
    mean = math.fsum(means_j) / n
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in means_j) / (n - 1))
    return float(stdtrit(n - 1, 0.975)) * sd / math.sqrt(n) / abs(mean) if mean else math.inf


def is_narrow(folders: Sequence[Path], until_relative: float) -> bool:
    """Whether the captures of a cell's repetitions pin its energy per epoch down well enough."""
    energies = [energy_per_epoch_j(open_capture(folder)) for folder in folders]
    return relative_half_width([e for e in energies if e is not None]) <= until_relative
