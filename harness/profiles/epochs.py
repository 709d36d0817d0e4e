"""Captures cut into phases by their markers, each phase integrated, throttled epochs set apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from device_agents.protocol import Phase
from harness.evidence.capture import Capture, Phased
from joulefleet.errors import DataQualityError
from power import Window
from power.energy import Baseline, MeasuredRecording, MeasuredWindow, measure_baseline, measure_windows


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch with its energy."""

    round: int
    epoch: int
    evidence: MeasuredWindow
    throttled: bool

    @property
    def start_ns(self) -> int:
        """Host time."""
        return self.evidence.energy.start_ns

    @property
    def end_ns(self) -> int:
        """Host time."""
        return self.evidence.energy.end_ns

    @property
    def usable(self) -> bool:
        """Whether it may be averaged in."""
        return self.evidence.energy.valid and not self.throttled


class CutCapture:
    """One capture, its phases integrated when they are first asked for.

    Attributes:
        session: Number of the session that it was made in, among the captures it is averaged with.
        problems: What turned out to be unusable on the way.
    """

    def __init__(self, capture: Capture, session: int = 1) -> None:
        self.capture = capture
        self.session = session
        self.record = capture.record
        self.problems: list[str] = []

    @cached_property
    def epochs(self) -> list[Epoch]:
        """All epochs, usable or not, in the order of time."""
        phases = [phase for phase in self.capture.phases() if phase.phase is Phase.EPOCH]
        numbers = _rounds(phases)
        labels = [f"round {n}, epoch {p.epoch}" for n, p in zip(numbers, phases, strict=True)]
        windows = [_window(p, label) for p, label in zip(phases, labels, strict=True)]
        found = with_time_beside(self.capture, phases, gather_phases(self.capture, windows))
        throttled = set(self.record.throttled_epochs)
        return [
            Epoch(number, phase.epoch, evidence, phase.epoch in throttled)
            for number, phase, evidence in zip(numbers, phases, found, strict=True)
        ]

    def probes(self) -> tuple[MeasuredWindow, ...]:
        """First epochs that may be used."""
        return tuple(e.evidence for e in self.epochs if e.usable and e.epoch == 1)

    def later_epochs(self) -> tuple[MeasuredWindow, ...]:
        """Second and later epochs that may be used."""
        return tuple(e.evidence for e in self.epochs if e.usable and e.epoch > 1)

    def rounds(self, local_epochs: int) -> tuple[MeasuredWindow, ...]:
        """Rounds of which all ``local_epochs`` epochs may be used: the epochs together."""
        found = []
        for number in dict.fromkeys(epoch.round for epoch in self.epochs):
            epochs = [epoch for epoch in self.epochs if epoch.round == number]
            if len(epochs) == local_epochs and all(epoch.usable for epoch in epochs):
                found.append(together([epoch.evidence for epoch in epochs], f"round {number}"))
        return tuple(found)

    def every(self, kind: Phase) -> tuple[MeasuredWindow, ...]:
        """Every stretch of another phase, also those whose energy is not known."""
        return gather_phases(
            self.capture,
            [_window(phase, kind.value) for phase in self.capture.phases() if phase.phase is kind],
        )

    def phase(self, kind: Phase) -> tuple[MeasuredWindow, ...]:
        """Every valid stretch of another phase."""
        return tuple(evidence for evidence in self.every(kind) if evidence.energy.valid)

    def bytes_of(self, kind: Phase) -> int | None:
        """Size of a transfer, as the device noted it."""
        sizes = [m.extra.get("bytes") for m in self.capture.markers if m.kind is kind]
        known = [int(size) for size in sizes if isinstance(size, int | float)]
        return known[-1] if known else None

    @cached_property
    def baseline(self) -> Baseline | None:
        """Idle power around the work; None if no idle time was recorded or it cannot be used."""
        return self._measure([Window(w.start_ns, w.end_ns, "idle") for w in self.record.idle[:2]])

    @cached_property
    def load_baseline(self) -> Baseline | None:
        """Power of the background load by itself; None if it was not measured."""
        phases = [phase for phase in self.capture.phases() if phase.phase is Phase.LOAD]
        return self._measure([_window(phase, "background load alone") for phase in phases[-1:]])

    def idle(self) -> tuple[MeasuredWindow, ...]:
        """The idle time before and after."""
        found = gather_phases(self.capture, [Window(w.start_ns, w.end_ns, "idle") for w in self.record.idle])
        return tuple(evidence for evidence in found if evidence.energy.valid)

    def measured(
        self, evidence: Sequence[MeasuredWindow], baseline: Baseline | None = None
    ) -> MeasuredRecording:
        """Windows of this capture for `power.energy.uncertainty`."""
        recording = self.capture.recording
        return MeasuredRecording(tuple(evidence), recording.info.accuracy, baseline, recording.notes)

    def _measure(self, windows: Sequence[Window]) -> Baseline | None:
        if not windows:
            return None
        try:
            return measure_baseline(self.capture.recording, *windows)
        except DataQualityError as error:
            self.problems.append(f"{self.record.capture_id}: {error.message}")
            return None


def gather_phases(capture: Capture, windows: Sequence[Window]) -> tuple[MeasuredWindow, ...]:
    """Integrate phases of a capture. One that lies between two samples has the power that they show."""
    recording, by_s = capture.recording, capture.record.clock.window_uncertainty_s
    reach_ns = round(1e9 / recording.record.info.rate_hz)
    found = list(measure_windows(recording, windows, sync_uncertainty_s=by_s)) if windows else []
    between = [i for i, one in enumerate(found) if not one.energy.n_samples and one.energy.duration_s > 0]
    around = [Window(windows[i].start_ns - reach_ns, windows[i].end_ns + reach_ns) for i in between]
    wider = measure_windows(recording, around, sync_uncertainty_s=by_s) if around else ()
    for i, one in zip(between, wider, strict=True):
        if one.energy.valid:
            found[i] = _narrowed(one, windows[i])
    return tuple(found)


def with_time_beside(
    capture: Capture, phases: Sequence[Phased], found: Sequence[MeasuredWindow]
) -> tuple[MeasuredWindow, ...]:
    """Epochs with their share of the host time that no marker accounts for, and of its energy."""
    beside: dict[int, tuple[float, float | None]] = {}
    disguised_s: dict[int, float] = {}
    for part in capture.unaccounted():
        gaps = gather_phases(capture, [Window(*gap) for gap in part.gaps]) if part.seconds else ()
        known_s = math.fsum(gap.energy.duration_s for gap in gaps if gap.energy.valid)
        known_j = math.fsum(gap.energy.energy_j or 0.0 for gap in gaps if gap.energy.valid)
        for epoch in part.epochs:
            beside[epoch] = part.seconds / len(part.epochs), known_j / known_s if known_s else None
        disguised_s[part.epochs[0]] = part.disguised_s
    return tuple(
        _beside(_beside(one, *beside.get(phase.epoch, (0.0, None))), disguised_s.get(phase.epoch, 0.0), None)
        if phase.phase is Phase.EPOCH
        else one
        for phase, one in zip(phases, found, strict=True)
    )


def _beside(one: MeasuredWindow, seconds: float, power_w: float | None) -> MeasuredWindow:
    """With more time that may belong to it; where its power was not recorded, or is training's, as within."""
    drawn_w = (one.energy.mean_power_w or 0.0) if power_w is None else power_w
    return replace(one, beside_s=one.beside_s + seconds, beside_j=one.beside_j + drawn_w * seconds)


def _narrowed(wider: MeasuredWindow, window: Window) -> MeasuredWindow:
    """The share of a window that a shorter one has of its time."""
    energy = wider.energy
    share = window.duration_s / energy.duration_s
    return MeasuredWindow(
        energy=replace(
            energy,
            label=window.label,
            start_ns=window.start_ns,
            end_ns=window.end_ns,
            energy_j=share * (energy.energy_j or 0.0),
            charge_c=share * (energy.charge_c or 0.0),
            n_samples=0,
            bridged_s=share * energy.bridged_s,
            range_energy_j=tuple(share * joules for joules in energy.range_energy_j),
            range_volt_s=tuple(share * volt_s for volt_s in energy.range_volt_s),
            notes=(*energy.notes, "between two samples: the power is that of the samples around it"),
        ),
        earlier_j=share * wider.earlier_j,
        later_j=share * wider.later_j,
        noise_j=share * wider.noise_j,
        loss_j=share * wider.loss_j,
    )


def _rounds(phases: Sequence[Phased]) -> list[int]:
    numbers, number = [], 0
    for phase in phases:
        number += phase.epoch == 1
        numbers.append(number)
    return numbers


def _window(phase: Phased, label: str) -> Window:
    return Window(phase.start_ns, phase.end_ns, label)


def together(parts: Sequence[MeasuredWindow], label: str) -> MeasuredWindow:
    """Several windows as one that lasts as long as they do together; what lies between is left out.

    The clock's error moves all of them alike, so its effects add; noise and losses are independent.
    """
    energies = [part.energy for part in parts]
    start_ns = energies[0].start_ns
    ranges_j = [energy.range_energy_j for energy in energies]
    ranges_vs = [energy.range_volt_s for energy in energies]
    return MeasuredWindow(
        energy=replace(
            energies[0],
            label=label,
            end_ns=start_ns + sum(energy.end_ns - energy.start_ns for energy in energies),
            energy_j=math.fsum(energy.energy_j or 0.0 for energy in energies),
            charge_c=math.fsum(energy.charge_c or 0.0 for energy in energies),
            n_samples=sum(energy.n_samples for energy in energies),
            lost_fraction=max(energy.lost_fraction for energy in energies),
            loss_known=all(energy.loss_known for energy in energies),
            bridged_s=math.fsum(energy.bridged_s for energy in energies),
            range_energy_j=tuple(map(math.fsum, zip(*ranges_j, strict=True))),
            range_volt_s=tuple(map(math.fsum, zip(*ranges_vs, strict=True))),
            problems=tuple(chain.from_iterable(energy.problems for energy in energies)),
            notes=tuple(dict.fromkeys(chain.from_iterable(energy.notes for energy in energies))),
        ),
        earlier_j=math.fsum(part.earlier_j for part in parts),
        later_j=math.fsum(part.later_j for part in parts),
        noise_j=math.hypot(*(part.noise_j for part in parts)),
        loss_j=math.hypot(*(part.loss_j for part in parts)),
        beside_s=math.fsum(part.beside_s for part in parts),
        beside_j=math.fsum(part.beside_j for part in parts),
    )
