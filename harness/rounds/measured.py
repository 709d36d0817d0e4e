"""A round as its captures show it: seconds and joules of each candidate's phases, and what may be wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from device_agents.protocol import Phase
from emulator.round.accounting import round_costs
from emulator.round.outcome import Accounting, ClientCost
from harness.evidence.capture import Capture, Phased
from harness.profiles.epochs import CutCapture, gather_phases
from harness.rounds.record import RoundRecord
from joulefleet.errors import DataQualityError
from power.energy.baseline import Baseline
from power.energy.measurement import MeasuredWindow
from power.energy.uncertainty import exposure_of, idle_over, limits_of
from power.energy.windows import Window
from power.profile.model import EnergyKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

PARTS = ("download", "probe", "wait", "train", "upload")


@dataclass(frozen=True, slots=True)
class Reading:
    """One part of a candidate's work.

    Attributes:
        duration_s: Between its markers; 0 if the device did not do it.
        energy_j: Of the kind that was asked for, as far as it is known.
        limits_j: How far each error of the instrument may move the energy (95 % limits), with sign.
        clock_j: The same for the place of the windows in time, as a standard uncertainty.
        complete: Whether the energy is known of all of it.
    """

    duration_s: float
    energy_j: float
    limits_j: NDArray[np.float64]
    clock_j: float
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Part:
    """A candidate's part of a round, by `PARTS`.

    Attributes:
        instrument: What tells the meter from others; its errors are the same in every round.
        began_ns: Host time of the first download marker.
        trained_ns: End of the last epoch.
        ended_ns: End of the last phase that the round needed of it.
        problems: What a reader should know.
    """

    device: str
    instrument: str
    readings: dict[str, Reading]
    began_ns: int
    trained_ns: int
    ended_ns: int
    problems: tuple[str, ...]


def read_part(capture: Capture, energy: EnergyKind) -> Part:
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
    phases = [(part, phase) for phase in capture.phases() if (part := part_of(phase)) is not None]
    found = gather_phases(capture, [Window(p.start_ns, p.end_ns, f"{name}, {part}") for part, p in phases])
    problems = [f"{e.energy.label}: its energy is not known: {'; '.join(e.energy.problems)}"
                for e in found if not e.energy.valid]  # fmt: skip
    if capture.record.throttled_epochs:
        problems.append(f"{name}: throttled in {len(capture.record.throttled_epochs)} epochs, which count")
    limits = limits_of(capture.recording.record.info.accuracy)
    info = capture.recording.record.info
    return Part(
        device=name,
        instrument=f"{info.kind} {info.serial or info.port or name}",
        readings={
            part: _reading(
                [e for (p, _), e in zip(phases, found, strict=True) if p == part], limits, baseline
            )
            for part in PARTS
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


def part_of(phase: Phased) -> str | None:
    """Which of `PARTS` a phase belongs to; None for what no accounting counts."""
    if phase.phase is Phase.EPOCH:
        return "probe" if phase.epoch == 1 else "train"
    return phase.phase.value if phase.phase in (Phase.DOWNLOAD, Phase.WAIT, Phase.UPLOAD) else None


def _reading(
    found: Sequence[MeasuredWindow], limits: NDArray[np.float64], baseline: Baseline | None
) -> Reading:
    """Windows of one part together. Time is known even where energy is not."""
    energy_j, exposure = 0.0, np.zeros_like(limits)
    valid = [evidence for evidence in found if evidence.energy.valid]
    for evidence in valid:
        energy_j += evidence.energy.energy_j or 0.0
        exposure += exposure_of(evidence.energy)
        if baseline is not None:
            idle_j, idle_exposure = idle_over(baseline, evidence.energy)
            energy_j -= idle_j
            exposure -= idle_exposure
    earlier_j = math.fsum(evidence.earlier_j for evidence in valid)
    later_j = math.fsum(evidence.later_j for evidence in valid)
    return Reading(
        duration_s=math.fsum(evidence.energy.duration_s for evidence in found),
        energy_j=energy_j,
        limits_j=exposure * limits,
        clock_j=math.sqrt((earlier_j**2 + later_j**2) / 2),
        complete=len(valid) == len(found),
    )


@dataclass(frozen=True, slots=True)
class Energy:
    """An energy counted in a round.

    Attributes:
        value_j: The energy.
        limits_j: By instrument, how far each of its errors may move it (95 % limits), with sign.
        clock_j: Standard uncertainty from the clocks; taken to be wrong in the same direction everywhere.
    """

    value_j: float
    limits_j: dict[str, NDArray[np.float64]]
    clock_j: float


@dataclass(frozen=True, slots=True)
class MeasuredRound:
    """One round and its parts, in the order of its candidates."""

    record: RoundRecord
    parts: tuple[Part, ...]

    def mask(self, chosen: Iterable[str]) -> NDArray[np.bool_]:
        """Who is among them."""
        wanted = set(chosen)
        return np.array([part.device in wanted for part in self.parts])

    def seconds(self, name: str) -> NDArray[np.float64]:
        """Duration of one part by candidate."""
        return np.array([part.readings[name].duration_s for part in self.parts])

    def joules(self, name: str) -> NDArray[np.float64]:
        """Energy of one part by candidate."""
        return np.array([part.readings[name].energy_j for part in self.parts])

    def client_cost(self) -> ClientCost:
        """As the emulator's accounting takes it."""
        seconds = {f"{name}_s": self.seconds(name) for name in PARTS}
        return ClientCost(**seconds, **{f"{name}_j": self.joules(name) for name in PARTS})

    def vanilla_s(self, chosen: NDArray[np.bool_]) -> float:
        """Slowest candidate through all epochs, then the slowest upload of the chosen."""
        trained_s = self.seconds("download") + self.seconds("probe") + self.seconds("train")
        return float(trained_s.max() + self.seconds("upload")[chosen].max())

    def probing_s(self) -> dict[Accounting, float]:
        """Duration of a probing round by accounting."""
        chosen = self.mask(self.record.chosen)
        probed_s = self.seconds("download") + self.seconds("probe")
        after_s = (self.seconds("train") + self.seconds("upload"))[chosen]
        costs = round_costs(self.client_cost(), chosen, float(probed_s.max() + after_s.max()), probed=True)
        return {accounting: cost.time_s for accounting, cost in costs.items()}

    def energy(self, weights: dict[str, NDArray[np.float64]]) -> Energy:
        """Energy of some parts of some candidates."""
        limits_j: dict[str, NDArray[np.float64]] = {}
        value_j = clock_j = 0.0
        for name, of_part in weights.items():
            for part, weight in zip(self.parts, of_part, strict=True):
                reading = part.readings[name]
                value_j += weight * reading.energy_j
                clock_j += weight * reading.clock_j
                moved_j = weight * reading.limits_j
                limits_j[part.instrument] = limits_j.get(part.instrument, 0.0) + moved_j
        return Energy(value_j, limits_j, clock_j)

    def elapsed_s(self, chosen: NDArray[np.bool_]) -> float:
        """As it happened, with all that no accounting counts: loading the task, messages, waiting.

        On the bench a candidate of a vanilla round uploads when it is done. In a round it would wait for the
        choice, so the uploads of the chosen are put after the slowest candidate.
        """
        began_ns = min(part.began_ns for part in self.parts)
        if self.record.k is None:
            trained_s = (max(part.trained_ns for part in self.parts) - began_ns) * 1e-9
            return trained_s + float(self.seconds("upload")[chosen].max())
        ended_ns = [part.ended_ns for part, is_chosen in zip(self.parts, chosen, strict=True) if is_chosen]
        return (max(ended_ns) - began_ns) * 1e-9


def vanilla_weights(chosen: NDArray[np.bool_]) -> dict[str, NDArray[np.float64]]:
    """What a vanilla round counts: everything, but uploads of the chosen only."""
    everybody = np.ones(len(chosen))
    return {
        "download": everybody,
        "probe": everybody,
        "train": everybody,
        "upload": chosen.astype(float),
    }


def probing_weights(accounting: Accounting, chosen: NDArray[np.bool_]) -> dict[str, NDArray[np.float64]]:
    """What a probing round counts; the same as `emulator.round.accounting`, by part."""
    everybody, kept = np.ones(len(chosen)), chosen.astype(float)
    before = everybody if accounting is Accounting.HONEST else kept
    probe = np.zeros(len(chosen)) if accounting is Accounting.FREE else before
    return {"download": before, "probe": probe, "train": kept, "upload": kept}


def wait_weights(m: int) -> dict[str, NDArray[np.float64]]:
    """Waiting for the decision, of everybody."""
    return {"wait": np.ones(m)}
