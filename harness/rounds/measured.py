"""What one device's part of a round took: seconds and joules by phase, and how sure they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from device_agents.protocol import Phase
from emulator.round import ClientCost
from harness.evidence.capture import Capture, Phased
from harness.profiles.epochs import CutCapture, gather_phases, with_time_beside
from joulefleet.errors import DataQualityError
from power import Window
from power.energy import Baseline, MeasuredWindow, error_factors, error_sensitivities, idle_energy
from power.profile import EnergyKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

PHASES = ("download", "probe", "wait", "train", "upload")


@dataclass(frozen=True, slots=True)
class PhaseReading:
    """One phase of a device's part.

    Attributes:
        duration_s: Between its markers; 0 if the device did not do it.
        energy_j: Of the kind that was asked for, as far as it is known.
        limits_j: How far each error of the instrument may move the energy (95 % limits), with sign.
        clock_j: The same for the place and length of the windows in time, as a standard uncertainty.
        complete: Whether the energy is known of all of it.
    """

    duration_s: float
    energy_j: float
    limits_j: NDArray[np.float64]
    clock_j: float
    complete: bool = True


@dataclass(frozen=True, slots=True)
class MeasuredPart:
    """A device's part of a round, by `PHASES`.

    Attributes:
        instrument: What tells the meter from others; its errors are the same in every round.
        began_ns: Host time of the first download marker.
        trained_ns: End of the last epoch.
        ended_ns: End of the last phase that the round needed of it.
        problems: What a reader should know.
    """

    device: str
    instrument: str
    readings: dict[str, PhaseReading]
    began_ns: int
    trained_ns: int
    ended_ns: int
    problems: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether the energy of every phase is known."""
        return all(reading.complete for reading in self.readings.values())


def read_part(capture: Capture, energy: EnergyKind) -> MeasuredPart:
    """Integrate the phases of one capture.

    Raises:
        DataQualityError: There is no idle power, which a net energy needs.
    """
    cut = CutCapture(capture)
    baseline = _baseline(cut, energy)
    name = capture.record.device.name
    if energy != "gross" and baseline is None:
        raise DataQualityError(
            f"{capture.folder}: no idle power, so there is no {energy} energy", hint="choose gross energy"
        )
    phases = [(part, phase) for phase in capture.phases() if (part := phase_name(phase)) is not None]
    windows = [Window(p.start_ns, p.end_ns, f"{name}, {part}") for part, p in phases]
    found = with_time_beside(capture, [p for _, p in phases], gather_phases(capture, windows))
    problems = [f"{e.energy.label}: its energy is not known: {'; '.join(e.energy.problems)}"
                for e in found if not e.energy.valid]  # fmt: skip
    if capture.record.throttled_epochs:
        problems.append(f"{name}: throttled in {len(capture.record.throttled_epochs)} epochs, which count")
    info = capture.recording.info
    factors = error_factors(info.accuracy)
    calibration = capture.recording.calibration
    corrected = "" if calibration is None else f" {calibration.sha256()[:12]}"
    return MeasuredPart(
        device=name,
        instrument=f"{info.kind} {info.serial or info.port or name}{corrected}",
        readings={
            part: _reading(
                [e for (p, _), e in zip(phases, found, strict=True) if p == part], factors, baseline
            )
            for part in PHASES
        },
        began_ns=min(p.start_ns for part, p in phases if part == "download"),
        trained_ns=max(p.end_ns for part, p in phases if part in ("probe", "train")),
        ended_ns=max(p.end_ns for _, p in phases),
        problems=tuple(problems),
    )


def _baseline(cut: CutCapture, energy: EnergyKind) -> Baseline | None:
    """What is subtracted: idle power, or for marginal energy that of the load beside the training."""
    if energy == "gross":
        return None
    loaded = energy == "marginal" and cut.record.background.kind != "none"
    return cut.load_baseline if loaded else cut.baseline


def phase_name(phase: Phased) -> str | None:
    """Which of `PHASES` a phase belongs to; None for what no accounting counts."""
    if phase.phase is Phase.EPOCH:
        return "probe" if phase.epoch == 1 else "train"
    return phase.phase.value if phase.phase in (Phase.DOWNLOAD, Phase.WAIT, Phase.UPLOAD) else None


def _reading(
    found: Sequence[MeasuredWindow], factors: NDArray[np.float64], baseline: Baseline | None
) -> PhaseReading:
    """Windows of one phase together. Time is known even where energy is not."""
    energy_j, exposure = 0.0, np.zeros(len(factors))
    valid = [evidence for evidence in found if evidence.energy.valid]
    for evidence in valid:
        energy_j += evidence.energy.energy_j or 0.0
        exposure += error_sensitivities(evidence.energy)
        if baseline is not None:
            idle_j, idle_exposure = idle_energy(baseline, evidence.energy)
            energy_j -= idle_j
            exposure -= idle_exposure
    earlier_j = math.fsum(evidence.earlier_j for evidence in valid)
    later_j = math.fsum(evidence.later_j for evidence in valid)
    beside_j = math.fsum(evidence.beside_j for evidence in valid)
    return PhaseReading(
        duration_s=math.fsum(evidence.energy.duration_s for evidence in found),
        energy_j=energy_j,
        limits_j=exposure @ factors,
        clock_j=math.hypot(math.sqrt((earlier_j**2 + later_j**2) / 2), beside_j / math.sqrt(3.0)),
        complete=len(valid) == len(found),
    )


def client_cost(parts: Sequence[MeasuredPart | None], *, probed: bool) -> ClientCost:
    """As the emulator counts: without a probe the first epoch is training like any other.

    Args:
        parts: What was measured of each participant; None of one whose part failed. What is not known of all
            of a phase is NaN, never nothing.
        probed: Whether there was a probe.
    """
    columns = {}
    for name in PHASES:
        found = [None if part is None else part.readings[name] for part in parts]
        columns[f"{name}_s"] = np.array([np.nan if one is None else one.duration_s for one in found])
        columns[f"{name}_j"] = np.array(
            [np.nan if one is None or not one.complete else one.energy_j for one in found]
        )
    if not probed:
        for unit in ("s", "j"):
            columns[f"train_{unit}"] = columns[f"train_{unit}"] + columns[f"probe_{unit}"]
            columns[f"probe_{unit}"] = np.where(np.isnan(columns[f"probe_{unit}"]), np.nan, 0.0)
    return ClientCost(**columns)
