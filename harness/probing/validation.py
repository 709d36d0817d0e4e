"""A probing run put together: what was measured, what its profiles predict, what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from emulator import Accounting
from harness.bench.journal import JOURNAL, read_steps
from harness.evidence.capture import Capture
from harness.inventory import load_inventory
from harness.probing.expected import (
    Expectation,
    RunRound,
    fitting_profiles,
    own_profiles,
    reserved,
)
from harness.probing.formula import Saving
from harness.probing.plan import ProbingPlan, load_probing_plan
from harness.probing.predict import ExpectedCell
from harness.probing.replay import EmulatedCell, emulate_rounds
from harness.probing.run import PLAN_FILE
from harness.probing.savings import (
    MeasuredRound,
    PairedSeries,
    probing_weights,
    saved,
    saved_share,
    vanilla_weights,
)
from harness.probing.schedule import expand_rounds, kept
from harness.profiles.sessions import find_sessions
from harness.rounds.measured import read_part
from harness.rounds.record import PROBING, open_probing_round, read_probing_rounds
from harness.rounds.session import INVENTORY_FILE
from joulefleet.errors import ConfigError, DataQualityError, JoulefleetError
from joulefleet.provenance import Origin, weakest
from joulefleet.runstore.run import read_run
from power import DeviceProfile
from power.profile import SESSIONS_FOR_SPREAD, EnergyKind, Quantity

NOT_COUNTED = (
    "counted are the phases of the round: receiving the model, epochs, sending it; loading the task and the "
    "messages between are in `elapsed_s` of each round only"
)
VANILLA_UPLOADS = (
    "in the vanilla rounds of the bench every candidate uploads as soon as it is done; uploads of the others "
    "are not counted, and waiting for the choice is not measured, only predicted"
)
OWN_PROFILES = "the vanilla rounds of this run; power while waiting from its probing rounds"


@dataclass(frozen=True, slots=True)
class MeasuredSaving(Saving[Quantity]):
    """The same with what was saved against the vanilla rounds, in seconds and joules."""

    saved_s: Quantity
    saved_j: Quantity


@dataclass(frozen=True, slots=True)
class MeasuredCell:
    """One M and K over all repetitions in which both rounds finished.

    Attributes:
        predicted: By the paper's formula; None without profiles.
        emulated: By the emulator, from the same profiles; likewise.
    """

    candidates: int
    chosen: int
    repetitions: int
    vanilla_s: Quantity
    vanilla_j: Quantity
    probing_wait_j: Quantity
    savings: dict[Accounting, MeasuredSaving]
    predicted: ExpectedCell | None
    emulated: EmulatedCell | None


@dataclass(frozen=True, slots=True)
class RoundLine:
    """One finished round in short."""

    number: int
    repetition: int
    candidates: tuple[str, ...]
    k: int | None
    chosen: tuple[str, ...]
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Validation:
    """What a probing run says.

    Attributes:
        origin: Of the measurement; ``emulated`` if an instrument was.
        predicted_origin: Of the predictions; None if there are none.
        profiles_from: What the predictions rest on.
        planned: Rounds of the plan.
        failed: Why rounds are missing.
        failed_attempts: Attempts at rounds that failed, also of rounds that succeeded later.
        measured: The finished rounds with what each phase of each device took.
    """

    run: Path
    origin: Origin
    predicted_origin: Origin | None
    profiles_from: str
    plan: ProbingPlan
    energy: EnergyKind
    cells: tuple[MeasuredCell, ...]
    rounds: tuple[RoundLine, ...]
    planned: int
    failed: dict[str, str]
    failed_attempts: int
    notes: tuple[str, ...]
    measured: tuple[MeasuredRound, ...]


def validate_run(
    run: Path,
    *,
    energy: EnergyKind = "marginal",
    profiles: Sequence[DeviceProfile] | None = None,
    profiles_from: str = OWN_PROFILES,
) -> Validation:
    """Compute everything from what is stored.

    Args:
        run: A probing run, finished or not.
        energy: Kind of energy; without background load marginal is net.
        profiles: To predict from; those of the run's own vanilla rounds if None.
        profiles_from: What to call them.

    Raises:
        ConfigError: It is no probing run, or the profiles do not fit.
        DataQualityError: No pair of rounds is finished, or a capture was changed.
    """
    if read_run(run).kind != PROBING:
        raise ConfigError(f"{run}: not a probing run", hint="`joulefleet runs list` shows the kinds")
    plan = load_probing_plan(run / "config" / PLAN_FILE)
    return _Validator(run, plan, energy).result(profiles, profiles_from)


class _Validator:
    """Everything that is read from a run once."""

    def __init__(self, run: Path, plan: ProbingPlan, energy: EnergyKind) -> None:
        self._run = run
        self._plan = plan
        self._energy = energy
        self._vanilla: list[Capture] = []
        self._probing: list[Capture] = []
        self._rounds: list[MeasuredRound] = []
        self._unknown: dict[int, str] = {}
        self._notes: list[str] = [NOT_COUNTED, VANILLA_UPLOADS]
        for record in read_probing_rounds(run):
            captures = open_probing_round(run, record)
            (self._vanilla if record.k is None else self._probing).extend(captures)
            parts = tuple(read_part(capture, energy) for capture in captures)
            problems = [problem for part in parts for problem in part.problems]
            self._notes += problems
            if all(part.complete for part in parts):
                self._rounds.append(MeasuredRound(record, parts))
            else:  # what is known of its energy would pass for all of it
                self._unknown[record.number] = "; ".join(problems)

    def result(self, profiles: Sequence[DeviceProfile] | None, profiles_from: str) -> Validation:
        pairs = {(m, k): self._pairs(m, k) for m, k in self._plan.pairs()}
        if not any(pairs.values()):
            raise DataQualityError(
                f"{self._run}: no vanilla round with its probing round is finished",
                hint="resume the run; its journal says what failed",
            )
        expectation = self._expectation(profiles)
        cells = [self._cell(m, k, found, expectation) for (m, k), found in pairs.items() if found]
        failed, failed_attempts, planned = self._failures()
        self._note_repetitions(pairs)
        return Validation(
            run=self._run,
            origin=weakest(c.provenance().origin for c in (*self._vanilla, *self._probing)),
            predicted_origin=expectation.origin if expectation else None,
            profiles_from=profiles_from if expectation else "",
            plan=self._plan,
            energy=self._energy,
            cells=tuple(cells),
            rounds=tuple(self._line(r) for r in self._rounds),
            planned=planned,
            failed=failed,
            failed_attempts=failed_attempts,
            notes=tuple(dict.fromkeys(self._notes)),
            measured=tuple(self._rounds),
        )

    def _pairs(self, m: int, k: int) -> list[tuple[MeasuredRound, MeasuredRound]]:
        """Vanilla and probing rounds of the same repetition."""
        vanilla = {r.record.repetition: r for r in self._rounds if (r.record.m, r.record.k) == (m, None)}
        probing = {r.record.repetition: r for r in self._rounds if (r.record.m, r.record.k) == (m, k)}
        return [(vanilla[n], probing[n]) for n in sorted(vanilla.keys() & probing.keys())]

    def _cell(
        self,
        m: int,
        k: int,
        pairs: Sequence[tuple[MeasuredRound, MeasuredRound]],
        expectation: Expectation | None,
    ) -> MeasuredCell:
        masks = [vanilla.mask(self._vanilla_chosen(vanilla, k)) for vanilla, _ in pairs]
        sessions = [self._sessions[Path(vanilla.record.jobs[0]).name] for vanilla, _ in pairs]
        vanilla_s = PairedSeries.of_times(
            [v.vanilla_s(mask) for (v, _), mask in zip(pairs, masks, strict=True)], sessions
        )
        vanilla_j = PairedSeries.of_energies(
            [v.energy(vanilla_weights(mask)) for (v, _), mask in zip(pairs, masks, strict=True)], sessions
        )
        probing = [p for _, p in pairs]
        rounds = [RunRound(p.record.candidates, p.record.chosen) for p in probing]
        waiting = {"wait": np.ones(m)}  # for the decision, of everybody
        emulated = None
        if expectation is not None:
            emulated = emulate_rounds(expectation.profiles, rounds, self._plan.local_epochs, self._energy)
        return MeasuredCell(
            candidates=m,
            chosen=k,
            repetitions=len(pairs),
            vanilla_s=vanilla_s.quantity(),
            vanilla_j=vanilla_j.quantity(),
            probing_wait_j=PairedSeries.of_energies(
                [p.energy(waiting) for p in probing], sessions
            ).quantity(),
            savings={a: _saving(a, vanilla_s, vanilla_j, probing) for a in Accounting},
            predicted=expectation.of(rounds) if expectation else None,
            emulated=emulated,
        )

    @cached_property
    def _sessions(self) -> dict[str, int]:
        """The session of each vanilla round's captures, by folder; its probing round followed at once."""
        numbers = find_sessions(self._vanilla).numbers
        return {capture.folder.name: n for capture, n in zip(self._vanilla, numbers, strict=True)}

    def _vanilla_chosen(self, vanilla: MeasuredRound, k: int) -> frozenset[str]:
        """Whom the server chooses after a vanilla round: by the same rule from the same report."""
        record, plan = vanilla.record, self._plan
        return kept(plan.keep, plan.seed, record.candidates, k, record.repetition, record.reports_s)

    def _line(self, measured: MeasuredRound) -> RoundLine:
        record = measured.record
        return RoundLine(
            record.number,
            record.repetition,
            record.candidates,
            record.k,
            record.chosen,
            measured.elapsed_s(measured.mask(record.chosen)),
        )

    def _expectation(self, profiles: Sequence[DeviceProfile] | None) -> Expectation | None:
        plan = self._plan
        try:
            if profiles is None:
                found = own_profiles(self._vanilla, self._probing)
            else:
                captures = (*self._vanilla, *self._probing)
                found = fitting_profiles(profiles, captures)
                self._notes += reserved(found, captures)
            expectation = Expectation(found, plan.local_epochs, self._energy, plan.seed)
        except JoulefleetError as error:
            if profiles is not None:
                raise
            self._notes.append(f"no prediction: {error.message}")
            return None
        self._notes += [f"prediction: {note}" for note in expectation.notes]
        return expectation

    def _failures(self) -> tuple[dict[str, str], int, int]:
        """Why rounds are missing, how many attempts failed, how many rounds were planned."""
        inventory = load_inventory(self._run / "config" / INVENTORY_FILE)
        planned = expand_rounds(self._plan, inventory)
        finished = {r.record.number for r in self._rounds}
        why: dict[str, str] = {}
        attempts = 0
        for record in read_steps(self._run / f"{JOURNAL}.jsonl"):
            attempts += record["event"] == "round_failed"
            if record["event"] in ("round_failed", "round_gave_up"):
                why[record["round"]] = record["error"]
        missing = [r for r in planned if r.number not in finished]
        reasons = {r.name: self._unknown.get(r.number) or why.get(r.name, "not run") for r in missing}
        return reasons, attempts, len(planned)

    def _note_repetitions(self, pairs: Mapping[tuple[int, int], Sequence[object]]) -> None:
        """Where the numbers rest on fewer repetitions than planned, or on one, or on few sessions."""
        count = len(set(self._sessions.values()))
        if count < SESSIONS_FOR_SPREAD:
            rounds = f"the rounds are of {count} session{'s' * (count > 1)}"
            self._notes.append(f"{rounds}: the spread between days is not in the intervals of the bench")
        for (m, k), found in pairs.items():
            if len(found) == 1:
                self._notes.append(f"M = {m}, K = {k}: one repetition, so there is no interval")
            elif len(found) < self._plan.repetitions:
                of = f"{len(found)} of {self._plan.repetitions}"
                self._notes.append(f"M = {m}, K = {k}: {of} repetitions have both rounds")


def _saving(
    accounting: Accounting, vanilla_s: PairedSeries, vanilla_j: PairedSeries, probing: Sequence[MeasuredRound]
) -> MeasuredSaving:
    time_s = PairedSeries.of_times([p.probing_s()[accounting] for p in probing], vanilla_s.sessions)
    energy_j = PairedSeries.of_energies(
        [p.energy(probing_weights(accounting, p.mask(p.record.chosen))) for p in probing],
        vanilla_s.sessions,
    )
    return MeasuredSaving(
        time_s=time_s.quantity(),
        energy_j=energy_j.quantity(),
        saved_s=saved(vanilla_s, time_s),
        saved_j=saved(vanilla_j, energy_j),
        time_saved=saved_share(vanilla_s, time_s),
        energy_saved=saved_share(vanilla_j, energy_j),
    )
