"""Whether a cell has been measured often enough: the interval of its energy per epoch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from device_agents.protocol import Phase
from harness.evidence.capture import Capture, open_capture
from harness.profiles.epochs import CutCapture
from joulefleet.interval import student_half_width
from power import Window
from power.energy import DEFAULT_POLICY, EnergyIndex, WindowEnergy


def energy_per_epoch_j(capture: Capture) -> float | None:
    """Mean gross energy of the epochs after the probe (of the probe, if it is alone); None if none is usable.

    Throttled epochs do not count.
    """
    usable = _epochs(capture)
    return math.fsum(e.energy_j or 0.0 for e in usable) / len(usable) if usable else None


def marginal_per_epoch_j(capture: Capture) -> float | None:
    """The same without what the device draws idle, or with its load alone; None if that was not recorded."""
    gross_j, cut = energy_per_epoch_j(capture), CutCapture(capture)
    baseline = cut.baseline if capture.record.background.kind == "none" else cut.load_baseline
    if gross_j is None or baseline is None:
        return None
    usable = _epochs(capture)
    others_j = [baseline.power_at((e.start_ns + e.end_ns) // 2) * e.duration_s for e in usable]
    return gross_j - math.fsum(others_j) / len(usable)


def _epochs(capture: Capture) -> list[WindowEnergy]:
    record = capture.record
    first = min(2, record.local_epochs)
    windows = [
        Window(phase.start_ns, phase.end_ns)
        for phase in capture.phases()
        if phase.phase is Phase.EPOCH and phase.epoch >= first and phase.epoch not in record.throttled_epochs
    ]
    return [e for e in EnergyIndex(capture.recording, DEFAULT_POLICY).integrate(windows) if e.valid]


def relative_half_width(means_j: Sequence[float]) -> float:
    """Half of Student's 95 % interval of the mean over repetitions, relative to the mean."""
    values = np.array(means_j)
    if len(values) < 2 or not values.mean():
        return math.inf
    return student_half_width(values) / abs(float(values.mean()))


def is_narrow(folders: Sequence[Path], until_relative: float) -> bool:
    """Whether the captures of a cell's repetitions pin its energy per epoch down well enough.

    That is the marginal energy, which predictions charge; the gross one where the former is not known of all.
    """
    captures = [open_capture(folder) for folder in folders]
    energies = [marginal_per_epoch_j(capture) for capture in captures]
    if None in energies:
        energies = [energy_per_epoch_j(capture) for capture in captures]
    return relative_half_width([e for e in energies if e is not None]) <= until_relative
