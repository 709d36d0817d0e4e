"""A federated run on the bench: a scenario with one seed, stored like an emulation, resumed by round."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emulator import Result, RoundOutcome, Selector, load_result
from emulator.runs import EMULATION_FILE, EmulationRecord, RunLog, load_checkpoint, read_log, save_checkpoint
from harness.bench.job.live_status import StatusBoard
from harness.bench.journal import Listener, tell
from harness.federate.federation import Federation, Played
from harness.federate.files import FederateFiles
from harness.federate.registration import Registered
from harness.federate.setup import FederationSetup
from harness.profiles.cells import CellKey
from harness.profiles.fit import RoundWork, fitting_profile, reservations
from harness.rounds.record import REGISTRATION, ROUNDS, FederatedRoundRecord, federated_file
from harness.rounds.session import NO_OUTPUTS, RunOutputs, Session, open_session
from joulefleet.errors import NobodyLeft
from joulefleet.provenance import Origin, weakest
from joulefleet.records import read_record, write_record
from power import DeviceProfile
from power.profile import missing_costs


def run_federation(
    files: FederateFiles,
    root: Path,
    *,
    resume: Path | None = None,
    profiles: Sequence[DeviceProfile] | None = None,
    selector: Selector | None = None,
    stop: threading.Event | None = None,
    listener: Listener = lambda *_: None,
    board: StatusBoard | None = None,
    on_round: Callable[[RoundOutcome], None] = lambda _: None,
    outputs: RunOutputs = NO_OUTPUTS,
    cache: Path | None = None,
) -> Result:
    """Play a scenario on the bench.

    Args:
        files: What to play.
        root: Folder of runs, for a new one.
        resume: A run to take up again: finished rounds are kept.
        profiles: What the server knows of the devices before the first round; by default it is measured.
        selector: An object instead of the selector that the scenario names.
        stop: Ends it cleanly when set; the round that is being played does not count.
        listener: Told what happens to which job or round.
        board: Where the devices' state is written as it changes, for a live view.
        on_round: Called after each round.
        outputs: What is written beside the evidence.
        cache: Folder of exported graphs.

    Raises:
        KeyboardInterrupt: ``stop`` was set.
        NobodyLeft: No device is left.
    """
    setup = FederationSetup.of(files, selector, cache)
    try:
        registered, notes = (None, []) if profiles is None else _from_profiles(setup, profiles)
        with open_session(
            files, root, resume=resume, outputs=outputs, listener=listener, board=board
        ) as session:
            for note in notes:
                tell(listener, "profiles", session.path.name, {"note": note})
            rounds = _FederatedRounds(session, files, setup, on_round)
            return rounds.play(registered, stop or threading.Event(), notes)
    finally:
        setup.uploads.close()


def _from_profiles(setup: FederationSetup, profiles: Sequence[DeviceProfile]) -> tuple[Registered, list[str]]:
    """What profiles tell the server, and what a reader should know about them."""
    task, settings = setup.data.task, setup.settings
    work = [
        RoundWork(
            key=CellKey(device, task.name, task.data_set, settings.backend),
            samples=setup.data.samples(client),
            batch_size=task.batch_size,
            threads=settings.threads,
            synthetic_data=False,
        )
        for client, device in enumerate(setup.devices)
    ]
    found = [fitting_profile(profiles, one) for one in work]
    notes = [note for profile, one in zip(found, work, strict=True) for note in reservations(profile, one)]
    notes += [
        f"registered as costing nothing, since a profile lacks it: {part}" for part in missing_costs(found)
    ]
    samples = np.array([one.samples for one in work])
    return Registered.from_profiles(found, samples, setup.scenario.energy), notes


class _FederatedRounds:
    """Plays and stores the rounds of a run that is open.

    Args:
        session: The run.
        files: What to play.
        setup: Who and what takes part.
        on_round: Called after each round.
    """

    def __init__(
        self,
        session: Session,
        files: FederateFiles,
        setup: FederationSetup,
        on_round: Callable[[RoundOutcome], None],
    ) -> None:
        self._session = session
        self._run = session.run
        self._files = files
        self._setup = setup
        self._on_round = on_round
        self._origin = Origin.EMULATED  # the weakest claim, until an instrument has said what it is
        (session.path / ROUNDS).mkdir(exist_ok=True)
        self._federation = Federation(session.bench, setup)

    def play(self, registered: Registered | None, stop: threading.Event, notes: Sequence[str] = ()) -> Result:
        """Play what is left.

        Args:
            registered: What the server knows of the devices; measured if None.
            stop: Ends it when set.
            notes: What a reader should know about where ``registered`` comes from.
        """
        path, federation = self._run.path, self._federation
        state = load_checkpoint(path)
        if state is not None:
            federation.load_state_dict(state)
        self._session.put_aside_unfinished(self._counted_jobs())
        self._register(registered, stop)
        known = (
            read_record(path / EMULATION_FILE, EmulationRecord) if (path / EMULATION_FILE).exists() else None
        )
        record = known or self._first_record(registered, notes)
        with self._log(resume_after=None if known is None else federation.round) as log:
            ended_early = self._rounds(log, stop)
        record = self._last_record(record, ended_early)
        write_record(path / EMULATION_FILE, record, replace=True)
        return load_result(path)

    def _register(self, registered: Registered | None, stop: threading.Event) -> None:
        """Until all devices are registered, or those that are not have failed often enough."""
        federation, file = self._federation, federated_file(self._run.path, REGISTRATION)
        if registered is not None and not federation.round:
            federation.register(registered)
        for attempt in range(1, self._files.settings.retry.attempts + 1):
            if not len(federation.unregistered):
                break
            self._session.note("registration", file.stem, attempt=attempt)
            record = federation.measure_registration(stop)
            known = read_record(file, FederatedRoundRecord).parts if file.exists() else ()
            parts = {part.client: part for part in (*known, *record.parts)}
            merged = record.model_copy(update={"parts": tuple(parts.values())})
            write_record(file, merged, replace=True)
            save_checkpoint(self._run.path, federation.state_dict())
        if registered is not None:
            save_checkpoint(self._run.path, federation.state_dict())

    def _rounds(self, log: RunLog, stop: threading.Event) -> str:
        """Play what is left; returns why that was not all, if so."""
        federation = self._federation
        while not federation.done:
            if stop.is_set():
                raise KeyboardInterrupt
            number = federation.round + 1
            self._session.note("round", f"{number:04d}")
            try:
                played = federation.play(stop)
            except NobodyLeft as error:
                if not federation.round:
                    raise
                self._run.leave_open(error.message)
                return error.message
            self._keep(played, log)
            tell(self._on_round, played.outcome)
        return ""

    def _keep(self, played: Played, log: RunLog) -> None:
        """Store a round; the checkpoint comes last, so that a round without one is played again."""
        federation, outcome, rules = self._federation, played.outcome, self._setup.rules
        write_record(federated_file(self._run.path, played.record.number), played.record)
        self._origin = played.origin or self._origin  # a round without a capture claims what the last one did
        tested = federation.done or (rules.test_every and outcome.round % rules.test_every == 0)
        log.append(
            outcome,
            eligible=played.eligible,
            loss=federation.score.loss,
            test_accuracy=federation.test().accuracy if tested else math.nan,
            overhead_s=federation.chooser.overhead_s,
            metrics=self._setup.selector.metrics(),
            origin=self._origin,
        )
        log.sync()
        save_checkpoint(self._run.path, federation.state_dict())
        failures = {part.device: part.failure for part in played.record.parts if part.failure}
        chosen = [part.device for part in played.record.parts if part.chosen]
        self._session.note("round_finished", f"{outcome.round:04d}", chosen=chosen, failures=failures)

    def _log(self, resume_after: int | None) -> RunLog:
        return RunLog(
            self._run,
            self._origin,
            training=self._setup.uploads.implementation,
            metrics=sorted(self._setup.selector.metrics()),
            resume_after=resume_after,
            on_bench=True,
        )

    def _first_record(self, registered: Registered | None, notes: Sequence[str]) -> EmulationRecord:
        setup, budgets = self._setup, self._federation.budgets
        facts: dict[str, Any] = {
            "seed": setup.seed,
            "selector": setup.selector.name,
            "privileged": False,
            "budgets": {"time_s": budgets.time_s, "energy_j": budgets.energy_j},
            "trainer": setup.uploads.implementation,
            "energy": setup.scenario.energy,
            "cost_origin": "not measured yet",
            "played": "on the bench",
            "devices": list(setup.devices),
            "registration": "measured" if registered is None else "from profiles",
            "registration_notes": list(notes),
            "not_used": list(self._files.not_used),
            **setup.facts,
        }
        record = EmulationRecord(scenario=setup.scenario, seed=setup.seed, facts=facts)
        write_record(self._run.path / EMULATION_FILE, record)
        return record

    def _last_record(self, record: EmulationRecord, ended_early: str) -> EmulationRecord:
        rounds = read_log(self._run.path, "rounds")
        origin = weakest(Origin(value) for value in rounds.column("cost_origin").to_pylist())
        accuracy = self._federation.test().accuracy
        return record.model_copy(
            update={
                "facts": {**record.facts, "cost_origin": origin.value},
                "rounds": self._federation.round,
                "test_accuracy": None if math.isnan(accuracy) else accuracy,
                "ended_early": ended_early,
            }
        )

    def _counted_jobs(self) -> set[str]:
        """Jobs of the rounds that count.

        The record of a round that has no checkpoint is removed: the round is played again.
        """
        last, again = self._federation.round, set(self._federation.unregistered.tolist())
        counted: set[str] = set()
        for file in sorted((self._run.path / ROUNDS).glob("*.json")):
            record = read_record(file, FederatedRoundRecord)
            if record.number > last:
                file.unlink()
                continue
            parts = [p for p in record.parts if record.number != REGISTRATION or p.client not in again]
            counted |= {part.job for part in parts if part.capture_sha256 is not None}
        return counted
