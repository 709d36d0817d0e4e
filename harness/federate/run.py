"""A federated run on the bench: a scenario with one seed, stored like an emulation, resumed by round."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from emulator.round.outcome import RoundOutcome
from emulator.runs.assemble import make_selector, rules_of
from emulator.runs.learners import learners_of, task_of
from emulator.runs.result import Result
from emulator.selectors.base import Selector
from harness.bench.journal import Listener, tell
from harness.federate.files import FederateFiles
from harness.federate.fleet_data import FleetData
from harness.federate.registration import Registered
from harness.federate.rounds import FederatedRounds
from harness.federate.setup import FederationSetup
from harness.federate.uploads import Uploads
from harness.profiles.cells import CellKey
from harness.profiles.fit import RoundWork, fitting_profile, reservations
from harness.rounds.session import NO_OUTPUTS, RunOutputs, open_session
from power.profile.model import DeviceProfile

if TYPE_CHECKING:
    from emulator.training.table import TableTrainer


def run_federation(
    files: FederateFiles,
    root: Path,
    *,
    resume: Path | None = None,
    profiles: Sequence[DeviceProfile] | None = None,
    selector: Selector | None = None,
    stop: threading.Event | None = None,
    listener: Listener = lambda *_: None,
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
        on_round: Called after each round.
        outputs: What is written beside the evidence.
        cache: Folder of exported graphs.

    Raises:
        KeyboardInterrupt: ``stop`` was set.
        NobodyLeft: No device is left.
    """
    setup = _setup(files, selector, cache)
    try:
        registered, notes = (None, []) if profiles is None else _from_profiles(setup, profiles)
        with open_session(files, root, resume=resume, outputs=outputs, listener=listener) as session:
            for note in notes:
                tell(listener, "profiles", session.path.name, {"note": note})
            rounds = FederatedRounds(session, files, setup, on_round)
            return rounds.play(registered, stop or threading.Event(), notes)
    finally:
        setup.uploads.close()


def _setup(files: FederateFiles, selector: Selector | None, cache: Path | None) -> FederationSetup:
    scenario, seed = files.scenario, files.seed
    task = task_of(scenario.task)
    learners = learners_of(scenario, task, seed)
    trainer = cast("TableTrainer", learners.trainer)  # the surrogate, which has no data, was refused
    backend = files.settings.backend
    return FederationSetup(
        scenario=scenario,
        seed=seed,
        devices=files.devices,
        settings=files.settings,
        rules=rules_of(scenario, task),
        data=FleetData(task, trainer, len(files.devices), backend, cache),
        uploads=Uploads(trainer, backend),
        selector=make_selector(scenario) if selector is None else selector,
        classes=learners.classes,
        facts=learners.facts,
    )


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
    samples = np.array([one.samples for one in work])
    return Registered.from_profiles(found, samples, setup.scenario.energy), notes
