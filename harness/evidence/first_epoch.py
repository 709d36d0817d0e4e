"""A first epoch that is shorter than the later ones, and work before it that the device calls something else.

Before its first epoch a device sets up and warms up, and only its markers say where that ends: it can call a
part of the epoch "setup". The later epochs do the same work, and stand alone between two messages of the
host. So what the first lacks may lie before it, as far as the power trace has energy for it there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from device_agents.protocol import Phase
from power import Window
from power.energy import DEFAULT_POLICY, EnergyIndex, WindowEnergy

if TYPE_CHECKING:
    from device_agents import HostTimes
    from harness.evidence.capture import HostWindow, Phased
    from harness.evidence.unaccounted import Unaccounted
    from power.recording import Recording

ALIKE = 0.05
"""Epochs of the same work differ by some percent; by less than this share nothing is made of it."""


def with_disguised(
    left: Sequence[Unaccounted],
    phases: Sequence[Phased],
    times: HostTimes,
    recording: Recording,
    idle: Sequence[HostWindow],
) -> tuple[Unaccounted, ...]:
    """The same stretches; that of a first epoch with the time before it that may have been training.

    Args:
        left: Stretches of one job.
        phases: Of the same job, in host time.
        times: When the host sent the weights, before which nothing can be trained.
        recording: Of the same job.
        idle: When the device was left alone.
    """
    missing_s = _missing_s(left)
    if not missing_s:
        return tuple(left)
    first = next(phase for phase in phases if phase.phase is Phase.EPOCH)
    sent_ns = next((one.sent_ns for one in times.exchanges if one.what == "model"), times.sent_ns)
    before = Window(min(sent_ns, first.start_ns), first.start_ns, "before the first epoch")
    later = [p for p in phases if p.phase is Phase.EPOCH and p.epoch > 1]
    index = EnergyIndex(recording, DEFAULT_POLICY)
    training = index.integrate([Window(p.start_ns, p.end_ns) for p in later])
    alone = index.integrate([Window(w.start_ns, w.end_ns) for w in idle])
    (work,) = index.integrate([before])
    disguised_s = min(missing_s, _trained_s(work, _mean_w(training), _mean_w(alone)))
    return (replace(left[0], disguised_s=disguised_s), *left[1:])


def _missing_s(left: Sequence[Unaccounted]) -> float:
    """By how much the first epoch is shorter than the later ones can have been, per epoch; 0 if alike."""
    if len(left) < 2 or left[0].epochs != (1,):
        return 0.0  # no later epochs, or none that the host saw apart from the first
    later_s = math.fsum(part.trained_s + part.seconds for part in left[1:])
    mean_s = later_s / sum(len(part.epochs) for part in left[1:])
    missing_s = mean_s - left[0].trained_s - left[0].seconds
    return missing_s if missing_s > ALIKE * mean_s else 0.0


def _trained_s(work: WindowEnergy, training_w: float | None, alone_w: float | None) -> float:
    """For how long a device can have trained in a window, by the energy that it drew there."""
    rise_w = (training_w or 0.0) - (alone_w or 0.0)
    if not work.valid or work.energy_j is None or rise_w <= 0:
        return work.duration_s  # nobody knows, or nobody sees a difference
    above_j = work.energy_j - (alone_w or 0.0) * work.duration_s
    return min(work.duration_s, max(0.0, above_j / rise_w))


def _mean_w(windows: Sequence[WindowEnergy]) -> float | None:
    known = [one for one in windows if one.valid and one.duration_s]
    seconds = math.fsum(one.duration_s for one in known)
    return math.fsum(one.energy_j or 0.0 for one in known) / seconds if seconds else None
