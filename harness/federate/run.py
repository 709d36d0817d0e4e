"""A federated run on the bench: a scenario with one seed, stored like an emulation, resumed by round."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from emulator.round.outcome import RoundOutcome
from emulator.runs.assemble import learners_of, make_selector, protocol_of, task_of
from emulator.runs.emulation import Result
from emulator.scenario.load import scenario_text
from emulator.selectors.base import Selector
from harness.bench.journal import Listener, tell
from harness.evidence.salvage import salvage
from harness.federate.files import FederateFiles
from harness.federate.fleet_data import FleetData
from harness.federate.registration import Registered
from harness.federate.session import Sitting
from harness.federate.setup import FederationSetup
from harness.federate.uploads import Uploads
from harness.profiles.cells import CellKey
from harness.profiles.fit import RoundWork, fitting_profile, reservations
from harness.rounds.record import FEDERATION
from joulefleet.runstore import Run, RunStatus, RunStore
from joulefleet.runstore.run import read_run
from power.profile.model import DeviceProfile

if TYPE_CHECKING:
    from emulator.training.table import TableTrainer

SCENARIO_FILE = "scenario.toml"
SETTINGS_FILE = "federate.toml"
INVENTORY_FILE = "devices.toml"


def federate(
    files: FederateFiles,
    root: Path,
    *,
    resume: Path | None = None,
    profiles: Sequence[DeviceProfile] | None = None,
    selector: Selector | None = None,
    stop: threading.Event | None = None,
    listener: Listener = lambda *_: None,
    on_round: Callable[[RoundOutcome], None] = lambda _: None,
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
        cache: Folder of exported graphs.

    Raises:
        KeyboardInterrupt: ``stop`` was set.
        NobodyLeft: No device is left.
    """
    playing = _cast(files, selector, cache)
    try:
        registered, notes = (None, []) if profiles is None else _from_profiles(playing, profiles)
        with _open(files, root, resume) as run:
            tell(listener, "run", str(run.path), {})
            for note in notes:
                tell(listener, "profiles", run.path.name, {"note": note})
            sitting = Sitting(run, files, playing, listener, on_round)
            return sitting.play(registered, stop or threading.Event(), notes)
    finally:
        playing.uploads.close()


def _cast(files: FederateFiles, selector: Selector | None, cache: Path | None) -> FederationSetup:
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
        protocol=protocol_of(scenario, task),
        data=FleetData(task, trainer, len(files.devices), backend, cache),
        uploads=Uploads(trainer, backend),
        selector=make_selector(scenario) if selector is None else selector,
        classes=learners.classes,
        facts=learners.facts,
    )


def _from_profiles(cast: FederationSetup, profiles: Sequence[DeviceProfile]) -> tuple[Registered, list[str]]:
    """What profiles tell the server, and what a reader should know about them."""
    task, settings = cast.data.task, cast.settings
    work = [
        RoundWork(
            key=CellKey(device, task.name, task.data_set, settings.backend),
            samples=cast.data.samples(client),
            batch_size=task.batch_size,
            threads=settings.threads,
            synthetic_data=False,
        )
        for client, device in enumerate(cast.devices)
    ]
    found = [fitting_profile(profiles, one) for one in work]
    notes = [note for profile, one in zip(found, work, strict=True) for note in reservations(profile, one)]
    samples = np.array([one.samples for one in work])
    return Registered.from_profiles(found, samples, cast.scenario.energy), notes


def _open(files: FederateFiles, root: Path, resume: Path | None) -> Run:
    if resume is None:
        config = {
            SCENARIO_FILE: scenario_text(files.scenario_name),
            "scenario.resolved.json": files.scenario.to_json(),
            INVENTORY_FILE: files.inventory_path.read_text(encoding="utf-8"),
        }
        if files.settings_path is not None:
            config[SETTINGS_FILE] = files.settings_path.read_text(encoding="utf-8")
        return RunStore(root).create(
            files.scenario.name, kind=FEDERATION, config=config, fingerprint=files.fingerprint
        )
    record = read_run(resume)
    if record.status is RunStatus.RUNNING and record.fingerprint == files.fingerprint:
        salvage(resume)  # it was killed; refused if it is alive
    return RunStore(resume.parent).resume(resume, fingerprint=files.fingerprint)
