"""How well profiles of an earlier run predict federated rounds on the bench.

Every participant's part of every round is replayed by the emulator (`harness.probing.replay`) and held
against what was measured. Rounds during which the host's processors were busy or taken away are kept apart:
devices that are processes of this machine were slower then than any profile can know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from device_agents.protocol import Phase
from emulator import Accounting
from emulator.round import ClientCost, honest_time_s, round_costs
from emulator.runs import EMULATION_FILE, EmulationRecord
from harness.evidence.capture import Capture
from harness.probing.fidelity_model import (
    DEVICE,
    IDLE_BELOW,
    PHASES,
    ROUND,
    STEAL_ABOVE,
    ComparedWork,
    PredictionFidelity,
)
from harness.probing.replay import ReplayedRound, replay, replayed_origin
from harness.profiles.epochs import CutCapture
from harness.profiles.fit import RoundWork, fitting_profile, reservations
from harness.rounds.host_load import HostLoad
from harness.rounds.measured import client_cost, phase_name, read_part
from harness.rounds.record import (
    FEDERATION,
    FederatedRoundRecord,
    PartRecord,
    open_part,
    read_federated_rounds,
)
from joulefleet.errors import ConfigError, DataQualityError
from joulefleet.provenance import Origin, weakest
from joulefleet.records import read_record
from joulefleet.runstore.run import read_run
from power import DeviceProfile
from power.profile import EnergyKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

Span = tuple[int, int]
"""Host time, nanoseconds."""


def measure_fidelity(
    run: Path, profiles: Sequence[DeviceProfile], *, energy: EnergyKind | None = None
) -> PredictionFidelity:
    """Predict the rounds of a federated run.

    Args:
        run: A run of ``joulefleet bench federate``, finished or not.
        profiles: One per device, of the work that the rounds did, built from other captures.
        energy: Kind of energy; the one that the scenario charges if None.

    Raises:
        ConfigError: It is no such run, or the profiles do not fit.
        DataQualityError: No round is finished, or the profiles were built from this very run.
    """
    if read_run(run).kind != FEDERATION:
        raise ConfigError(
            f"{run}: not a run of `joulefleet bench federate`", hint="`joulefleet runs list` shows the kinds"
        )
    rounds = read_federated_rounds(run)
    if not any(part.capture_sha256 for record in rounds for part in record.parts):
        raise DataQualityError(f"{run}: no round is finished", hint="resume the run; its journal says why")
    about = read_record(run / EMULATION_FILE, EmulationRecord)
    return _Comparison(run, about, profiles, energy or about.scenario.energy).result(rounds)


@dataclass(frozen=True, slots=True, eq=False)
class _BothWays:
    """The participants of a round whose part was measured: what it took, and what it should have taken."""

    record: FederatedRoundRecord
    parts: tuple[PartRecord, ...]
    captures: tuple[Capture, ...]
    measured: ClientCost
    predicted: ClientCost

    @property
    def chosen(self) -> NDArray[np.bool_]:
        return np.array([part.chosen for part in self.parts])

    def pair(self, what: str, unit: str, place: int) -> tuple[float, float]:
        """Measured and predicted, of one phase or of all of them; waiting is counted by no accounting."""
        phases = PHASES if what == DEVICE else (what,)
        measured, predicted = (
            sum(float(getattr(cost, f"{phase}_{unit}")[place]) for phase in phases)
            for cost in (self.measured, self.predicted)
        )
        return measured, predicted

    def changed(self, place: int) -> bool:
        return self.load(place) > 0 or self.parts[place].link_bps is not None

    def load(self, place: int) -> float:
        return self.captures[place].record.background.load

    def spans(self, place: int) -> dict[str, Span]:
        """When each phase began and ended, and all of them together."""
        found: dict[str, Span] = {}
        for phase in self.captures[place].phases():
            name = phase_name(phase)
            if name == "probe" and not self.record.probed:
                name = "train"
            for key in (name, DEVICE) if name in PHASES else ():
                begin_ns, end_ns = found.get(key, (phase.start_ns, phase.end_ns))
                found[key] = (min(begin_ns, phase.start_ns), max(end_ns, phase.end_ns))
        return found


class _Comparison:
    """Everything that is read from a run once."""

    def __init__(
        self, run: Path, about: EmulationRecord, profiles: Sequence[DeviceProfile], energy: EnergyKind
    ) -> None:
        self._run = run
        self._energy = energy
        self._profiles = profiles
        self._host = HostLoad.read(run)
        self._by_device: dict[str, DeviceProfile] = {}
        self._sources: set[str] = set()
        self._origins: list[Origin] = []
        self._notes: dict[str, None] = {}
        if energy != "marginal":
            self._notes[f"under a background load a profile knows marginal energy only, not {energy}"] = None

    def result(self, rounds: Sequence[FederatedRoundRecord]) -> PredictionFidelity:
        compared = [one for record in rounds for one in self._round(record)]
        own = self._sources & {s.sha256 for p in self._by_device.values() for s in p.provenance.sources}
        if own:
            raise DataQualityError(
                f"{len(own)} captures of {self._run} are in the profiles, which would predict themselves",
                hint="use profiles of an earlier run",
            )
        if unread := sum(one.what == ROUND and one.contended is None for one in compared):
            self._notes[f"whether the host was contended is not known of {unread} rounds"] = None
        return PredictionFidelity(
            run=self._run,
            origin=weakest(self._origins),
            predicted_origin=replayed_origin(list(self._by_device.values())),
            energy=self._energy,
            compared=tuple(compared),
            left_out=tuple(
                f"round {record.number}, {part.device}: {part.failure}"
                for record in rounds
                for part in record.parts
                if part.capture_sha256 is None
            ),
            notes=tuple(self._notes),
        )

    def _round(self, record: FederatedRoundRecord) -> Iterator[ComparedWork]:
        parts = tuple(part for part in record.parts if part.capture_sha256 is not None)
        if not parts:
            return
        both = self._both_ways(record, parts)
        for place in range(len(parts)):
            spans = both.spans(place)
            for what in (*PHASES, DEVICE):
                if what in spans:
                    yield self._of_device(both, what, place, spans[what])
        yield self._of_round(both)

    def _both_ways(self, record: FederatedRoundRecord, parts: tuple[PartRecord, ...]) -> _BothWays:
        captures = tuple(open_part(self._run, part) for part in parts)
        read = [read_part(capture, self._energy) for capture in captures]
        self._origins += [capture.provenance().origin for capture in captures]
        self._sources |= {capture.record.sha256() for capture in captures}
        self._notes |= dict.fromkeys(problem for part in read for problem in part.problems)
        wanted = ReplayedRound(
            profiles=[self._profile(capture) for capture in captures],
            samples=np.array([capture.record.samples for capture in captures]),
            epochs=np.array([part.epochs for part in parts]),
            chosen=np.array([part.chosen for part in parts]),
            load=np.array([capture.record.background.load for capture in captures]),
            link_bps=np.array([np.nan if part.link_bps is None else part.link_bps for part in parts]),
            model_bytes=max(CutCapture(capture).bytes_of(Phase.DOWNLOAD) or 0 for capture in captures),
            probed=record.probed,
        )
        measured = client_cost(read, probed=record.probed)
        return _BothWays(record, parts, captures, measured, replay(wanted, self._energy))

    def _profile(self, capture: Capture) -> DeviceProfile:
        device = capture.record.device.name
        if device not in self._by_device:
            work = RoundWork.of(capture)
            self._by_device[device] = fitting_profile(self._profiles, work)
            self._notes |= dict.fromkeys(reservations(self._by_device[device], work))
        return self._by_device[device]

    def _of_device(self, both: _BothWays, what: str, place: int, span: Span) -> ComparedWork:
        found = self._compared(
            both,
            what,
            span,
            seconds=both.pair(what, "s", place),
            joules=both.pair(what, "j", place),
            places=(place,),
        )
        return self._with_processor_time(found, both.captures[place]) if what == DEVICE else found

    def _with_processor_time(self, one: ComparedWork, capture: Capture) -> ComparedWork:
        """Devices tell it of all epochs together; a background load takes none of it."""
        profile, record = self._profile(capture), capture.record
        epochs = sum(phase.phase is Phase.EPOCH for phase in capture.phases())
        each_s = profile.epoch_cpu_s
        predicted_s = None if each_s is None else each_s.mean * epochs * record.samples / profile.samples
        return replace(one, measured_cpu_s=record.epochs_cpu_s, predicted_cpu_s=predicted_s)

    def _of_round(self, both: _BothWays) -> ComparedWork:
        places, probed = tuple(range(len(both.parts))), both.record.probed
        spans = [both.spans(place)[DEVICE] for place in places]
        measured, predicted = (
            round_costs(cost, both.chosen, honest_time_s(cost, both.chosen, probed=probed), probed=probed)[
                Accounting.HONEST
            ]
            for cost in (both.measured, both.predicted)
        )
        return self._compared(
            both,
            ROUND,
            (min(begin for begin, _ in spans), max(end for _, end in spans)),
            seconds=(measured.time_s, predicted.time_s),
            joules=(measured.energy_j, predicted.energy_j),
            places=places,
        )

    def _compared(
        self,
        both: _BothWays,
        what: str,
        span: Span,
        *,
        seconds: tuple[float, float],
        joules: tuple[float, float],
        places: tuple[int, ...],
    ) -> ComparedWork:
        host = self._host.between(*span)
        return ComparedWork(
            round=both.record.number,
            what=what,
            device="" if what == ROUND else both.parts[places[0]].device,
            measured_s=seconds[0],
            predicted_s=seconds[1],
            measured_j=joules[0],
            predicted_j=joules[1],
            load=max(both.load(place) for place in places),
            changed=any(both.changed(place) for place in places),
            idle=None if host is None else host.idle,
            steal=None if host is None else host.steal,
            contended=None if host is None else host.idle < IDLE_BELOW or host.steal > STEAL_ABOVE,
        )
