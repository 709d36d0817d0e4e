"""What early exit saves of rounds without it, and that both baselines stand in the tables by name."""

import csv
import io

import numpy as np
import pytest

from emulator.experiments.numbers import as_csv
from emulator.experiments.render import as_markdown
from emulator.experiments.results import ExperimentResults, load_experiment
from emulator.experiments.summary import summarise
from emulator.experiments.vanilla import against_vanilla
from emulator.round.accounting import vanilla_cost
from emulator.round.outcome import Accounting, ClientCost
from emulator.runs.reading import FinishedRun
from tests.emulator.small_experiment import played, small_plan


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> ExperimentResults:
    return load_experiment(played(tmp_path_factory.mktemp("experiments"), small_plan()))


def test_without_early_exit_everybody_trains_and_the_chosen_upload() -> None:
    zero = np.zeros(3)
    cost = ClientCost(
        download_s=np.array([1.0, 1.0, 2.0]), probe_s=np.array([2.0, 2.0, 2.0]), wait_s=zero + 9,
        train_s=np.array([8.0, 20.0, 8.0]), upload_s=np.array([3.0, 100.0, 1.0]),
        download_j=zero + 1, probe_j=zero + 2, wait_j=zero + 9, train_j=np.array([8.0, 20.0, 8.0]),
        upload_j=np.array([3.0, 100.0, 1.0]),
    )  # fmt: skip
    found = vanilla_cost(cost, np.array([True, False, True]))
    assert found.time_s == 1 + 2 + 20 + 3  # the slowest trains on, but does not upload
    assert found.energy_j == 3 * (1 + 2) + 8 + 20 + 8 + 3 + 1


def saved_by_hand(run: FinishedRun) -> float:
    """Two local epochs, so training on is one epoch more."""
    clients = run.clients
    went_on, stopped = clients[clients["chosen"]], clients[~clients["chosen"]]
    later_j = went_on["train_j"].sum() / went_on["probe_j"].sum()
    vanilla_j = clients[["download_j", "probe_j", "train_j", "upload_j"]].to_numpy().sum()
    return float(1 - run.rounds["energy_j_honest"].sum() / (vanilla_j + (stopped["probe_j"] * later_j).sum()))


def test_the_tables_name_both_baselines(results: ExperimentResults) -> None:
    summary, more = summarise(results)
    assert set(summary.vanilla) == {"fedrank"}  # the others do not probe an epoch
    honest = summary.vanilla["fedrank"].savings[Accounting.HONEST].energy
    runs = summary.runs["fedrank"].values()
    assert honest.mean == pytest.approx(np.mean([saved_by_hand(run) for run in runs]))
    # More candidates, more that stop early.
    assert more.vanilla["fedrank"].savings[Accounting.HONEST].energy.mean > honest.mean
    text = as_markdown(results)
    assert "energy % of FedAvg: honest" in text
    assert "energy saved % of vanilla: honest" in text
    assert "10.6%" in text  # the paper's figure, which is against vanilla
    rows = list(csv.DictReader(io.StringIO(as_csv(results))))
    found = {
        row["quantity"]: row for row in rows if row["variant"] == "plain" and "vanilla" in row["quantity"]
    }
    assert {row["method"] for row in found.values()} == {"fedrank"}
    assert float(found["energy_saved_of_vanilla_honest"]["mean"]) == pytest.approx(honest.mean)
    assert len(found) == 2 + 2 * len(Accounting)


def test_rounds_with_drop_outs_are_left_out(
    results: ExperimentResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = next(iter(summarise(results)[0].runs["fedrank"].values()))
    clients = run.clients
    clients.loc[clients["round"] == 2, "fate"] = "left"
    monkeypatch.setattr(FinishedRun, "clients", property(lambda _: clients))
    found = against_vanilla([run])
    assert found is not None
    assert (found.rounds, found.left_out) == (3, 1)
    clients["fate"] = "left"
    assert against_vanilla([run]) is None
