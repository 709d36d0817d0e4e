"""Profiles from captures: epochs cut out by their markers, integrated, and stated with an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from device_agents.protocol import Phase
from fedjoule.errors import DataQualityError
from fedjoule.provenance import combine
from harness.capture import Capture
from power.baseline import Baseline, measure_baseline
from power.evidence import gather
from power.profile import DeviceProfile, PhaseCost, Quantity
from power.uncertainty import EnergyInterval, Session, gross_interval, net_interval
from power.windows import Window


@dataclass(frozen=True, slots=True)
class EpochRow:
    """One epoch of a capture. Energy is gross, in joules."""

    round: int
    epoch: int
    start_ns: int
    end_ns: int
    energy_j: float

    @property
    def duration_s(self) -> float:
        """Seconds."""
        return (self.end_ns - self.start_ns) * 1e-9


def epoch_rows(capture: Capture) -> list[EpochRow]:
    """Every epoch that may be used, in the order of time; each epoch 1 begins a new round."""
    windows = _epoch_windows(capture)
    found = gather(
        capture.recording,
        [window for _, _, window in windows],
        sync_uncertainty_s=capture.record.clock.sync_uncertainty_s,
    )
    return [
        EpochRow(number, epoch, window.start_ns, window.end_ns, evidence.energy.energy_j)
        for (number, epoch, window), evidence in zip(windows, found, strict=True)
        if evidence.energy.valid and evidence.energy.energy_j is not None
    ]


def _epoch_windows(capture: Capture) -> list[tuple[int, int, Window]]:
    windows = []
    number = 0
    for phase in capture.phases():
        if phase.phase is not Phase.EPOCH:
            continue
        number += phase.epoch == 1
        label = f"round {number}, epoch {phase.epoch}"
        windows.append((number, phase.epoch, Window(phase.start_ns, phase.end_ns, label)))
    return windows


def build_profile(captures: Sequence[Capture], *, dataset: str, backend: str) -> DeviceProfile:
    """A profile of the device and workload that the captures share.

    Raises:
        DataQualityError: There is no capture, or one has no usable probe or later epoch.
    """
    if not captures:
        raise DataQualityError("no capture to build a profile from")
    first = captures[0].record
    baselines = [_baseline(capture) for capture in captures]
    return DeviceProfile(
        device=first.device.name,
        model=first.workload,
        dataset=dataset,
        backend=backend,
        samples=first.samples,
        batch_size=first.batch_size,
        probe=_cost(captures, baselines, probe=True),
        epoch=_cost(captures, baselines, probe=False),
        idle_power_w=_idle_power(baselines),
        provenance=combine(capture.provenance() for capture in captures),
    )


def _baseline(capture: Capture) -> Baseline:
    before, after = (Window(w.start_ns, w.end_ns, "idle") for w in capture.record.idle)
    return measure_baseline(capture.recording, before, after)


def _cost(captures: Sequence[Capture], baselines: Sequence[Baseline], *, probe: bool) -> PhaseCost:
    """Probe epochs, or later epochs: durations and energies over all captures."""
    sessions = []
    durations_s: list[float] = []
    for capture, baseline in zip(captures, baselines, strict=True):
        windows = [window for _, epoch, window in _epoch_windows(capture) if (epoch == 1) is probe]
        found = gather(capture.recording, windows, sync_uncertainty_s=capture.record.clock.sync_uncertainty_s)
        usable = tuple(evidence for evidence in found if evidence.energy.valid)
        if not usable:
            reasons = {problem for evidence in found for problem in evidence.energy.problems}
            raise DataQualityError(
                f"capture {capture.record.capture_id}: no usable {'probe' if probe else 'later'} epoch: "
                f"{'; '.join(sorted(reasons)) or 'none was run'}",
                hint="repeat the measurement; see the findings of its recording",
            )
        durations_s += [evidence.energy.duration_s for evidence in usable]
        sessions.append(Session(usable, capture.recording.record.info.accuracy, baseline))
    return PhaseCost(
        duration_s=_repeated(np.array(durations_s)),
        gross_j=_energy(gross_interval(sessions)),
        net_j=_energy(net_interval(sessions)),
    )


def _energy(interval: EnergyInterval) -> Quantity:
    return Quantity(
        mean=interval.value_j, n=interval.n, sd=interval.sd_j, half_width_95=interval.half_width_j
    )


def _repeated(values: np.ndarray) -> Quantity:
    """Mean of repetitions with Student's t interval; none for a single one."""
    n = len(values)
    if n < 2:
        return Quantity(mean=float(values.mean()), n=n)
    sd = float(values.std(ddof=1))
    return Quantity(
        mean=float(values.mean()), n=n, sd=sd, half_width_95=float(stdtrit(n - 1, 0.975)) * sd / math.sqrt(n)
    )


def _idle_power(baselines: Sequence[Baseline]) -> Quantity:
    return _repeated(np.array([part.power_w for baseline in baselines for part in baseline.intervals]))
