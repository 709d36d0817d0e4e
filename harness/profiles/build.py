"""Profiles from captures: what every phase costs, the load curve, heat, and where it all came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from device_agents.protocol import Phase
from harness.evidence.capture import Capture
from harness.profiles import quantities
from harness.profiles.cells import CellKey, Level, by_background, require_alike
from harness.profiles.curve import fit_curve
from harness.profiles.epochs import CutCapture
from harness.profiles.sessions import few_sessions, find_sessions
from joulefleet.errors import DataQualityError
from joulefleet.provenance import combine
from power import DeviceProfile
from power.energy import MeasuredWindow
from power.profile import (
    MeasuredLoad,
    PhaseCost,
    Quantity,
    StatedSpread,
    Thermal,
    TransferCost,
)

SHORTEST_WAIT_S = 0.05
CLOCKS_IN_A_WAIT = 20.0
"""A wait has to last this many clock uncertainties: then its power is wrong by a twentieth at most."""


def build_profile(
    captures: Sequence[Capture],
    *,
    dataset: str | None = None,
    backend: str | None = None,
    stated_spread: StatedSpread | None = None,
) -> DeviceProfile:
    """A profile of the device and workload that the captures share.

    Args:
        captures: One or more repetitions, with or without background loads.
        dataset: What to call the data set; what the captures call it if None.
        backend: The same.
        stated_spread: Between sessions, used where fewer than three were measured; the largest that a plan
            behind the captures states if None.

    Raises:
        DataQualityError: There is no capture, they do not belong together, or none has a usable epoch.
    """
    require_alike(captures)
    sessions = find_sessions(captures)
    levels = by_background(captures, sessions.numbers)
    stated = stated_spread or _planned_spread(captures)
    key = CellKey.of(captures[0])
    first = captures[0].record
    builder = _Builder(levels[0], stated.relative_sd if stated is not None else None)
    load_levels = builder.load_levels(levels)
    load_curve, notes_on_curve = fit_curve(load_levels)
    profile = DeviceProfile(
        device=key.device,
        model=key.model,
        dataset=dataset or key.dataset,
        backend=backend or key.backend,
        samples=first.samples,
        batch_size=first.batch_size,
        threads=first.threads,
        synthetic_data=first.synthetic_data,
        warmup_epochs=first.warmup_epochs,
        probe=builder.probe(),
        epoch=builder.epoch(),
        epoch_cpu_s=builder.epoch_cpu(),
        round=builder.round(),
        local_epochs=builder.local_epochs,
        download=builder.transfer(Phase.DOWNLOAD),
        upload=builder.transfer(Phase.UPLOAD),
        idle_power_w=builder.idle_power(),
        wait_power_w=builder.wait_power(),
        load_curve=load_curve,
        load_levels=load_levels if len(load_levels) > 1 else (),
        thermal=_thermal(levels),
        battery=first.device.battery,
        sessions=sessions.count,
        stated_spread=stated,
        notes=(*builder.all_notes(levels), *notes_on_curve, *sessions.notes(stated)),
        provenance=combine(capture.provenance() for capture in captures),
    )
    few = few_sessions(profile)
    return profile.model_copy(update={"notes": (*profile.notes, *few)}) if few else profile


def _planned_spread(captures: Sequence[Capture]) -> StatedSpread | None:
    """The largest that a plan stated: nobody else would say which of several holds."""
    planned = [session.stated_spread for c in captures if (session := c.record.session) is not None]
    return max((one for one in planned if one is not None), key=lambda one: one.relative_sd, default=None)


@dataclass
class _Builder:
    """The parts of a profile, from the captures without background load."""

    level: Level
    between: float | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def captures(self) -> tuple[CutCapture, ...]:
        """Without background load."""
        return self.level.captures

    @property
    def local_epochs(self) -> int:
        """l_ep: as the captures say, or the longest round in them."""
        stated = self.captures[0].record.local_epochs
        return stated or max((e.epoch for capture in self.captures for e in capture.epochs), default=1)

    def probe(self) -> PhaseCost:
        """First epochs."""
        return self._cost([capture.probes() for capture in self.captures], "probe epoch")

    def epoch(self) -> PhaseCost:
        """Later epochs; the first ones where there are no others."""
        if self.local_epochs == 1:
            self.notes.append("rounds of one epoch: later epochs are taken to cost what the probe does")
            return self.probe()
        return self._cost([capture.later_epochs() for capture in self.captures], "later epoch")

    def epoch_cpu(self) -> Quantity | None:
        """Processor time of an epoch; devices tell the sum over a round, so the first one is in it."""
        found = [
            (capture.session, [record.epochs_cpu_s / len(capture.epochs)])
            for capture in self.captures
            if (record := capture.record).epochs_cpu_s is not None and not record.throttled_epochs
        ]
        return quantities.scattered(found, between=self.between) if found else None

    def round(self) -> PhaseCost | None:
        """All epochs of a round, where a whole round may be used."""
        found = [capture.rounds(self.local_epochs) for capture in self.captures]
        if not any(found):
            self.notes.append("no round with all its epochs usable: their sum is not stated")
            return None
        return self._cost(found, "round")

    def transfer(self, kind: Phase) -> TransferCost | None:
        """A download or an upload, where there was one and its energy is known; its time always is."""
        tried = [capture.every(kind) for capture in self.captures]
        found = [tuple(evidence for evidence in windows if evidence.energy.valid) for windows in tried]
        if not any(found):
            problems = {problem for windows in tried for e in windows for problem in e.energy.problems}
            if problems:
                why = "; ".join(sorted(problems))
                self.notes.append(f"{kind.value} is left out, its energy is not known: {why}")
            return None
        cost = self._cost(found, kind.value)
        windows = [(c.session, windows) for c, windows in zip(self.captures, tried, strict=True)]
        timed = quantities.duration(windows, between=self.between)
        cost = cost.model_copy(update={"duration_s": timed})
        sizes = {size for capture in self.captures if (size := capture.bytes_of(kind)) is not None}
        return TransferCost(**cost.model_dump(), bytes=sizes.pop() if len(sizes) == 1 else None)

    def idle_power(self) -> Quantity | None:
        """Before and after the work."""
        return self._power([(c.session, c.measured(c.idle())) for c in self.captures])

    def wait_power(self) -> Quantity | None:
        """Awake, between the probe's report and the decision."""
        waits = [
            (c.session, c.measured([e for e in c.phase(Phase.WAIT) if _long_enough(e, c)]))
            for c in self.captures
        ]
        found = self._power(waits)
        if found is None:
            self.notes.append("no wait for the decision was long enough to tell its power")
        return found

    def load_levels(self, levels: Sequence[Level]) -> tuple[MeasuredLoad, ...]:
        """An epoch beside every background load, the one without included."""
        name = self.level.background.name or "none"
        found = [MeasuredLoad(name=name, kind="none", load=0.0, epoch=self.epoch())]
        for level in levels[1:]:
            background = level.background
            captures = level.captures
            name = background.name or f"{background.kind} {background.load:g}"
            epochs = [c.later_epochs() if self.local_epochs > 1 else c.probes() for c in captures]
            try:
                found.append(
                    MeasuredLoad(
                        name=name,
                        kind=background.kind,
                        load=background.load,
                        load_only_power_w=self._power(
                            [(c.session, c.measured(c.phase(Phase.LOAD))) for c in captures]
                        ),
                        epoch=_cost(captures, epochs, f"epoch beside load {name!r}", self.between),
                    )
                )
            except DataQualityError as error:
                self.notes.append(f"background {name!r} is left out: {error.message}")
        return tuple(found)

    def all_notes(self, levels: Sequence[Level]) -> tuple[str, ...]:
        """What was noticed on the way."""
        captures = [capture for level in levels for capture in level.captures]
        problems = [problem for capture in captures for problem in capture.problems]
        for recording in (capture.capture.recording for capture in captures):
            problems += [f"instrument: {recording.info.accuracy.source}", *recording.notes]
        if self.captures[0].record.synthetic_data:
            problems.append(
                "trained on random samples of the right shape, which may take longer than real ones"
            )
        return tuple(dict.fromkeys([*self.notes, *problems]))

    def _cost(self, found: Sequence[tuple[MeasuredWindow, ...]], what: str) -> PhaseCost:
        return _cost(self.captures, found, what, self.between)

    def _power(self, found: Sequence[quantities.InSession]) -> Quantity | None:
        if not any(recording.windows for _, recording in found):
            return None
        return quantities.power(found, between=self.between)


def _cost(
    captures: Sequence[CutCapture],
    found: Sequence[tuple[MeasuredWindow, ...]],
    what: str,
    between: float | None,
) -> PhaseCost:
    """Duration and energies of some windows, by capture.

    Beside a background load the marginal energy is what exceeds the load's own power; without one it is the
    net energy. Either is left out where its baseline was not recorded.

    Raises:
        DataQualityError: No window is usable.
    """
    pairs = [(capture, windows) for capture, windows in zip(captures, found, strict=True) if windows]
    if not pairs:
        raise DataQualityError(
            f"no usable {what} in {', '.join(c.record.capture_id for c in captures)}: {_reasons(captures)}",
            hint="repeat the measurement; see the findings of its recordings",
        )
    with_idle = [(c.session, c.measured(windows, c.baseline)) for c, windows in pairs]
    net = _net(with_idle, between)
    if pairs[0][0].record.background.kind == "none":
        marginal = net
    else:
        beside = [(c.session, c.measured(windows, c.load_baseline)) for c, windows in pairs]
        marginal = _net(beside, between)
    return PhaseCost(
        duration_s=quantities.duration([(c.session, w) for c, w in pairs], between=between),
        # The baseline tells how much slow noise the instrument has, which limits a gross energy too.
        gross_j=quantities.energy(with_idle, net=False, between=between),
        net_j=net,
        marginal_j=marginal,
    )


def _net(found: Sequence[quantities.InSession], between: float | None) -> Quantity | None:
    """Over the captures that have a baseline."""
    known = [(session, recording) for session, recording in found if recording.baseline is not None]
    return quantities.energy(known, net=True, between=between) if known else None


def _reasons(captures: Sequence[CutCapture]) -> str:
    problems = {p for c in captures for e in c.epochs for p in e.evidence.energy.problems}
    throttled = sum(epoch.throttled for capture in captures for epoch in capture.epochs)
    if throttled:
        problems.add(f"{throttled} epochs were throttled")
    return "; ".join(sorted(problems)) or "none was run"


def _long_enough(evidence: MeasuredWindow, capture: CutCapture) -> bool:
    least_s = max(SHORTEST_WAIT_S, CLOCKS_IN_A_WAIT * capture.record.clock.sync_uncertainty_s)
    return evidence.energy.duration_s >= least_s


def _thermal(levels: Sequence[Level]) -> Thermal:
    captures = [capture for level in levels for capture in level.captures]
    epochs = [(capture, epoch) for capture in captures for epoch in capture.epochs]
    used = [(capture, epoch) for capture, epoch in epochs if epoch.usable]
    temperatures = [t for capture in captures if (t := capture.record.temperature) is not None]
    return Thermal(
        epochs_used=len(used),
        epochs_throttled=sum(epoch.throttled for _, epoch in epochs),
        epochs_unknown=sum(not capture.record.throttling_known for capture, _ in used),
        temperature_min_c=min((t.first_c for t in temperatures), default=None),
        temperature_max_c=max((t.max_c for t in temperatures), default=None),
    )
