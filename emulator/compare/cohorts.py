"""Diagnostic: how many classes the devices of a cohort hold between them.

It uses the true labels of the partition, which no selector but an oracle sees: it explains an accuracy, it
cannot earn one. Random cohorts of single-class devices hold 7 or 8 of 10 classes, loss-greedy ones 3 to 5.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from emulator.round.outcome import Fate
from emulator.runs.assemble import data_of
from emulator.scenario.model import TaskSection
from joulefleet.errors import DataQualityError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emulator.runs.emulation import Result


def classes_per_cohort(result: Result) -> float:
    """Mean over the rounds of a stored run of the classes that those who sent an update hold together.

    Raises:
        DataQualityError: The run trained on no data, or on other data than are at hand now.
    """
    record = result.record
    made = record.facts.get("partition")
    if made is None:
        raise DataQualityError(f"{result.path}: trained on no data, so there are no classes to count")
    scenario = record.scenario
    held, sha256 = _holdings(scenario.task.model_dump_json(), scenario.fleet.devices, record.seed)
    if sha256 != made["sha256"]:
        raise DataQualityError(
            f"{result.path}: the data at hand are not those of the run",
            hint="set JOULEFLEET_DATA to the folder that it was run with",
        )
    clients = result.clients
    finished = clients[clients["chosen"] & (clients["fate"] == Fate.FINISHED.value) & (clients["round"] > 0)]
    counts = [held[devices.to_numpy()].any(0).sum() for _, devices in finished.groupby("round")["device"]]
    return float(np.mean(counts)) if counts else float("nan")


@lru_cache(maxsize=64)
def _holdings(task_json: str, devices: int, seed: int) -> tuple[NDArray[np.bool_], str]:
    """Which device holds which class, and the hash of who has what; the same for every method of a seed."""
    data, partition = data_of(TaskSection.model_validate_json(task_json), devices, seed)
    return partition.label_counts(data.train.y, data.classes) > 0, partition.sha256()
