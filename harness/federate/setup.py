"""Who and what takes part in a federation, and what each device is told to do in a round."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from emulator import Scenario, Selector
from emulator.round import RoundRules, check_size
from emulator.runs import check_learnable, learners_of, make_selector, rules_of, task_of
from harness.bench.job.workload import Assignment
from harness.bench.matrix import Cell
from harness.federate.files import FederateFiles, check_selector
from harness.federate.fleet_data import FleetData, Uploads
from harness.federate.participant import FederatedParticipant
from harness.federate.settings import FederateSettings
from harness.rounds.record import REGISTRATION, FederatedRoundRecord, PartRecord
from harness.rounds.round import RoundJob
from harness.rounds.server import Choose, RoundServer
from joulefleet.errors import ConfigError
from joulefleet.seeds import torch_seed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emulator.training import TableTrainer

    Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class FederationSetup:
    """Who and what takes part in a federation.

    Attributes:
        scenario: With the bench as its fleet.
        devices: Their names, in the order of the partition.
        data: What they train on.
        uploads: What they send, and the server's own scoring.
        selector: Chooses.
        classes: Number of classes.
        facts: About the data, for the manifest.
    """

    scenario: Scenario
    seed: int
    devices: tuple[str, ...]
    settings: FederateSettings
    rules: RoundRules
    data: FleetData
    uploads: Uploads
    selector: Selector
    classes: int
    facts: dict[str, Any]

    @classmethod
    def of(cls, files: FederateFiles, selector: Selector | None = None, cache: Path | None = None) -> Self:
        """What a person wrote, with data and models ready.

        Args:
            files: What to play.
            selector: An object instead of the selector that the scenario names.
            cache: Folder of exported graphs; by default the user's.
        """
        scenario, seed = files.scenario, files.seed
        task = task_of(scenario.task)
        if not task.metric.share:
            raise ConfigError(
                f"task {task.name!r} is judged by {task.metric.name}, and rounds on the bench by an accuracy",
                hint="`joulefleet bench run` measures what it costs, `joulefleet emulate` plays its rounds",
            )
        learners = learners_of(scenario, task, seed)
        chooser = make_selector(scenario) if selector is None else selector
        check_selector(chooser)
        check_size(chooser, len(files.devices))
        check_learnable(chooser, learners)
        trainer = cast("TableTrainer", learners.trainer)  # the surrogate, which has no data, was refused
        backend = files.settings.backend
        return cls(
            scenario=scenario,
            seed=seed,
            devices=files.devices,
            settings=files.settings,
            rules=rules_of(scenario, task),
            data=FleetData(task, trainer, len(files.devices), backend, cache),
            uploads=Uploads(trainer, backend),
            selector=chooser,
            classes=learners.classes,
            facts=learners.facts,
        )

    def participants(
        self, number: int, ids: Ids, epochs: Ids, weights: NDArray[np.float32]
    ) -> list[FederatedParticipant]:
        """Who trains what in a round, from these global weights."""
        task, model = self.data.task, self.data.model(weights)
        label, repetition = ("registration", 1) if number == REGISTRATION else ("federate", number)
        found = []
        for client, count in zip(ids.tolist(), epochs.tolist(), strict=True):
            device = self.devices[client]
            cell = Cell(device, task.name, self.settings.backend, self.settings.load(device, number))
            job = RoundJob(number * len(self.devices) + client + 1, cell, repetition, label=label)
            changes = {
                "epochs": count,
                "seed": torch_seed(self.seed, "federate data", client, number),
                "learning_rate": task.learning_rate,
                "momentum": task.momentum,
            }
            found.append(
                FederatedParticipant(
                    job,
                    Assignment(self.data.workload(client, model), self.data.samples(client), changes),
                    client=client,
                    epochs=count,
                    energy=self.scenario.energy,
                    load_only_s=self.settings.timing.load_only_s,
                )
            )
        return found

    def server(self, participants: list[FederatedParticipant], choose: Choose | None) -> RoundServer:
        """The server of a round."""
        timing = self.settings.timing
        return RoundServer(
            [one.device for one in participants],
            choose,
            start_timeout_s=timing.start_timeout_s,
            report_timeout_s=timing.report_timeout_s,
        )

    def record(
        self,
        number: int,
        participants: list[FederatedParticipant],
        chosen: NDArray[np.bool_],
        *,
        probed: bool,
        notes: tuple[str, ...] = (),
    ) -> FederatedRoundRecord:
        """What is stored of a round beside its captures."""
        parts = tuple(
            PartRecord(
                device=one.device,
                client=one.client,
                job=one.job.name,
                epochs=one.epochs,
                chosen=bool(is_chosen),
                capture_sha256=None if one.capture is None else one.capture.record.sha256(),
                failure=one.reason,
                link_bps=self.settings.link_bps(one.device, max(number, 1)),
            )
            for one, is_chosen in zip(participants, chosen, strict=True)
        )
        return FederatedRoundRecord(number=number, probed=probed, parts=parts, notes=notes)
