"""`look_ahead`: what an emulation would rest on, found without writing, fetching or training anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.runs.assembly import accuracy_facts, assemble, make_selector
from emulator.runs.learners import Learners, learners_of, task_of
from emulator.runs.replay.foreseen import Foreseen, foresee
from emulator.training.surrogate import SurrogateTrainer
from joulefleet.errors import StorageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from device_agents.workloads import Task
    from emulator.scenario.model import Scenario
    from emulator.training.base import Trainer
    from emulator.training.client_data import ClientData


@dataclass(frozen=True, slots=True)
class Outlook:
    """What an emulation would rest on.

    Attributes:
        facts: As its record would have them, those of data that are not at hand left out.
        eligible: Devices that could take part at the start.
        foreseen: What the traces hold for the planned rounds.
        missing: Why data are not at hand, if so: budgets depend on them.
    """

    facts: dict[str, Any]
    eligible: int
    foreseen: Foreseen
    missing: str


def look_ahead(scenario: Scenario, seed: int) -> Outlook:
    """Look at the first round of an emulation.

    Raises:
        ConfigError: The scenario does not fit together.
    """
    task, chooser = task_of(scenario.task), make_selector(scenario)
    missing = ""
    try:
        labels = "label_histogram" in chooser.needs
        learners = learners_of(scenario, task, seed, _stand_in, labels=labels, download=False)
    except StorageError as error:
        missing = error.message
        sizes = np.full(scenario.fleet.devices, scenario.task.samples_per_device, np.int64)
        shares = np.full((len(sizes), task.classes), 1 / max(task.classes, 1))
        learners = Learners(
            _StandIn(task, sizes, seed, scenario.trainer.kind),
            sizes,
            task.classes,
            shares,
            {},
            task.metric,
            task.per_sample_loss,
        )
    assembly = assemble(scenario, seed, selector=chooser, learners=learners)
    facts = {**assembly.facts, **accuracy_facts(scenario, chooser)}
    if missing:
        facts.pop("budgets")
        facts.pop("floors")
    eligible = int(assembly.engine.world.conditions.eligible(0).sum())
    return Outlook(facts, eligible, foresee(assembly.engine), missing)


class _StandIn(SurrogateTrainer):
    """Has the size of the model, and never trains."""

    note = ""

    def __init__(self, task: Task, sizes: NDArray[np.int64], seed: int, implementation: str) -> None:
        self.implementation, self._task = implementation, task
        super().__init__(sizes, task.classes, seed)

    def initial(self) -> NDArray[np.float32]:
        """As many numbers as the model has."""
        from emulator.training.layout import model_bytes

        return np.zeros(model_bytes(self._task) // np.dtype(np.float32).itemsize, np.float32)


def _stand_in(
    task: Task, clients: ClientData, *, implementation: str = "auto", workers: int | None = None
) -> Trainer:
    from emulator.training.choose import resolved

    chosen = resolved(task, clients, implementation)
    found = _StandIn(task, clients.partition.sizes, clients.seed, chosen.name)
    found.note = chosen.note
    return found
