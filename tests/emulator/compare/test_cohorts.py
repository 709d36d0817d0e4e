"""Classes per cohort, counted from stored runs with the true labels of their partitions."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from emulator.compare.load import compare_emulations
from emulator.compare.metrics import classes_per_cohort
from emulator.runs.batch import run
from emulator.runs.learners import data_of
from emulator.runs.result import Result
from emulator.scenario.model import (
    FleetSection,
    ProtocolSection,
    Scenario,
    SelectorSection,
    TaskSection,
    TrainerSection,
)
from joulefleet.errors import DataQualityError
from tests.emulator.stored_edits import edit_table


def stored(folder: Path, selector: str, trainer: TrainerSection) -> Result:
    scenario = Scenario(
        name="cohorts",
        fleet=FleetSection(devices=60),
        task=TaskSection(
            name="digits-softmax", partition="dir_client", options={"alpha": 0.01}, train_samples=600
        ),
        protocol=ProtocolSection(rounds=4, k=10, local_epochs=1),
        selector=SelectorSection(name=selector),
        trainer=trainer,
    )
    return run(scenario, seed=3, out=folder)


@pytest.fixture(scope="module")
def random_run(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return stored(tmp_path_factory.mktemp("cohorts"), "fedavg", TrainerSection(workers=1))


def test_a_count_by_hand(random_run: Result) -> None:
    data, partition = data_of(random_run.record.scenario.task, 60, 3)
    clients = random_run.clients
    counts = []
    for number in range(1, 5):
        chosen = clients[(clients["round"] == number) & clients["chosen"]]["device"]
        counts.append(len(set(np.concatenate([data.train.y[partition.shard(d)] for d in chosen]).tolist())))
    assert classes_per_cohort(random_run) == pytest.approx(np.mean(counts))
    counted = compare_emulations(random_run.path, with_cohorts=True).comparison.cells["fedavg"]
    assert counted["classes_per_cohort"].value.mean == pytest.approx(np.mean(counts))
    assert 1 < np.mean(counts) < 10


def test_who_did_not_finish_or_was_not_chosen_does_not_count(random_run: Result, tmp_path: Path) -> None:
    """Of each cohort only the first device finishes; and one that was not chosen does not count either."""
    data, partition = data_of(random_run.record.scenario.task, 60, 3)
    held = [len(set(data.train.y[partition.shard(d)].tolist())) for d in range(60)]
    folder = tmp_path / "edited"
    shutil.copytree(random_run.path, folder)

    def first_alone(clients: pd.DataFrame) -> pd.DataFrame:
        later = clients.duplicated("round")
        clients.loc[later, "fate"] = "left"
        clients.loc[later & (clients["round"] == 2), ["chosen", "fate"]] = [False, "finished"]
        return clients

    edit_table(folder, "clients", first_alone)
    firsts = random_run.clients.groupby("round")["device"].first()
    assert classes_per_cohort(Result(folder, random_run.record)) == np.mean([held[d] for d in firsts])
    # Nor does who was profiled before the first round.
    edit_table(folder, "clients", lambda clients: clients.assign(round=clients["round"] - 1))
    assert classes_per_cohort(Result(folder, random_run.record)) == np.mean([held[d] for d in firsts[1:]])


def test_the_coverage_oracle_covers_more(random_run: Result, tmp_path: Path) -> None:
    oracle = stored(tmp_path, "class_coverage_oracle", TrainerSection(workers=1))
    assert classes_per_cohort(oracle) > classes_per_cohort(random_run)


def test_other_data_than_those_of_the_run(random_run: Result) -> None:
    made = {**random_run.record.facts["partition"], "sha256": "0" * 64}
    facts = {**random_run.record.facts, "partition": made}
    other = Result(random_run.path, random_run.record.model_copy(update={"facts": facts}))
    with pytest.raises(DataQualityError, match="not those of the run"):
        classes_per_cohort(other)


def test_a_run_without_data(tmp_path: Path) -> None:
    with pytest.raises(DataQualityError, match="trained on no data"):
        classes_per_cohort(stored(tmp_path, "fedavg", TrainerSection(kind="surrogate")))


def test_a_run_of_another_metric_has_no_classes(random_run: Result) -> None:
    facts = {**random_run.record.facts, "metric": {"name": "mae"}}
    other = Result(random_run.path, random_run.record.model_copy(update={"facts": facts}))
    with pytest.raises(DataQualityError, match="joulefleet's own tasks"):
        classes_per_cohort(other)
