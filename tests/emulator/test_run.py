"""Runs as users start them: `run`, folders, tables, the environment, the example."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from emulator.compare.load import compare_emulations, method_name
from emulator.fleet.network import TransferSource
from emulator.round.outcome import Accounting, Fate
from emulator.runs.batch import plan, play, run, run_all, start
from emulator.runs.opening import read_index
from emulator.runs.result import load_result
from emulator.runs.tables import METRIC_PREFIX
from emulator.scenario.model import (
    FleetSection,
    ProtocolSection,
    Scenario,
    SelectorSection,
    TracesSection,
    TrainerSection,
)
from emulator.selectors.eafl import Eafl
from emulator.selectors.fedavg import FedAvg
from emulator.selectors.fedrank.selector import FedRank
from emulator.selectors.fedrank.variants import WithoutRanking
from emulator.selectors.neural.policy import any_policy, write_policy
from emulator.selectors.oort.selector import Oort
from joulefleet.errors import ConfigError, StorageError
from tests.conftest import REPOSITORY
from tests.emulator.worlds import Prober

SMALL = Scenario(
    name="small",
    fleet=FleetSection(devices=20, speed_spread=0.3),
    protocol=ProtocolSection(rounds=3, k=3, candidates=6),
    trainer=TrainerSection(kind="surrogate"),
)


def test_a_run_is_its_tables(tmp_path: Path) -> None:
    seen = []
    result = run(SMALL, selector=Prober(), seed=4, out=tmp_path, on_round=seen.append)
    rounds, clients = result.rounds, result.clients
    assert rounds["round"].tolist() == [1, 2, 3]
    assert rounds["start_ns"].tolist() == [o.start_ns for o in seen]
    assert (rounds["start_ns"] + rounds["duration_ns"]).tolist()[:-1] == rounds["start_ns"].tolist()[1:]
    for accounting in Accounting:
        expected = [o.costs[accounting].energy_j for o in seen]
        assert rounds[f"energy_j_{accounting}"].tolist() == expected
    assert (rounds["energy_j_honest"] > rounds["energy_j_selected_only"]).all()
    assert (rounds["energy_j_selected_only"] > rounds["energy_j_free"]).all()
    assert (rounds["wait_j"] > 0).all()
    assert set(rounds["cost_origin"]) == {"literature"}
    assert set(rounds["training"]) == {"surrogate"}
    assert rounds["test_accuracy"].notna().all()
    assert len(clients) == 18
    assert clients.groupby("round")["chosen"].sum().tolist() == [3, 3, 3]
    assert set(clients["fate"]) == {Fate.FINISHED.value, Fate.REJECTED.value}
    charged = clients[["download_j", "probe_j", "train_j", "upload_j"]].sum(axis=1)
    assert charged.groupby(clients["round"]).sum().tolist() == pytest.approx(
        rounds["energy_j_honest"].tolist()
    )
    assert (result.overhead["selection_s"] > 0).all()


def test_the_record_is_enough_to_repeat_it(tmp_path: Path) -> None:
    first = run(SMALL, seed=4, out=tmp_path)
    record = load_result(first.path).record
    again = run(record.scenario, seed=record.seed, out=tmp_path)
    for name in ("rounds.parquet", "clients.parquet", "devices.parquet"):
        assert (first.path / name).read_bytes() == (again.path / name).read_bytes()
    assert record.facts["budgets"] == again.record.facts["budgets"]
    assert record.rounds == 3


@pytest.mark.parametrize("traces", [None, TracesSection(at_end="wrap", users=2, days=1)])
def test_recorded_transfers_need_a_record(tmp_path: Path, traces: TracesSection | None) -> None:
    fleet = SMALL.fleet.model_copy(update={"network": TransferSource.TRACE, "traces": traces})
    with pytest.raises(ConfigError, match="no throughput was recorded"):
        run(SMALL.model_copy(update={"fleet": fleet}), out=tmp_path)


def test_selectors_add_columns_of_their_own(tmp_path: Path) -> None:
    scenario = SMALL.model_copy(update={"selector": SMALL.selector.model_copy(update={"name": "oort"})})
    rounds = run(scenario, out=tmp_path).rounds
    own = [name for name in rounds.columns if name.startswith(METRIC_PREFIX)]
    assert own
    assert rounds[own].notna().all().all()


def test_a_plan_is_one_folder_each_and_an_index(tmp_path: Path) -> None:
    index = plan(SMALL, ["fedavg", "oort"], [0, 1, 0])
    assert [p.folder for p in index.planned] == ["fedavg_s0", "fedavg_s1", "oort_s0", "oort_s1"]
    with start(tmp_path, index, "# as written") as started:
        results = play(started, index)
    assert [(r.record.selector, r.record.seed) for r in results] == [
        (p.selector, p.seed) for p in index.planned
    ]
    assert (started.path / "config" / "scenario.toml").read_text() == "# as written"
    assert [p.folder for p in read_index(started.path).planned] == [r.path.name for r in results]
    with pytest.raises(StorageError, match=r"no index\.json"):
        read_index(tmp_path)


def test_seeds_are_paired_across_selectors(tmp_path: Path) -> None:
    index = plan(SMALL, ["fedavg", "oort"], [3])
    with start(tmp_path, index, "") as started:
        one, other = play(started, index)
    for fact in ("budgets", "profiles", "traces"):
        assert one.record.facts[fact] == other.record.facts[fact]


def test_the_environment_does_what_the_action_says() -> None:
    from emulator.environment import EmulatorEnv

    env = EmulatorEnv(SMALL)
    observation, info = env.reset(seed=0)
    epoch_s, candidates = observation["state"][:, 0], info["candidates"]
    _, _, _, _, info = env.step(-epoch_s.astype(np.float32))
    assert sorted(info["chosen"]) == sorted(candidates[np.argsort(epoch_s)[:3]])
    ids = EmulatorEnv(SMALL, action="ids")
    _, info = ids.reset(seed=0)
    candidates = info["candidates"]
    _, _, _, _, info = ids.step(np.array([5, 5, 0]))
    assert info["chosen"].tolist() == candidates[[0, 5]].tolist()
    with pytest.raises(ConfigError, match="action is 'words'"):
        EmulatorEnv(SMALL, action="words")
    with pytest.raises(RuntimeError, match="reset before step"):
        EmulatorEnv(SMALL).step(np.zeros(6))


def test_the_example_of_an_own_selector_runs(tmp_path: Path) -> None:
    example = REPOSITORY / "examples" / "own_selector.py"
    lines = [line for line in example.read_text().splitlines() if line.strip()]
    assert len(lines) < 30
    done = subprocess.run(
        [sys.executable, str(example), str(tmp_path)], capture_output=True, text=True, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr
    assert "energy_j_honest" in done.stdout
    (folder,) = tmp_path.iterdir()
    assert load_result(folder / "loss_per_joule_s0").record.selector == "loss_per_joule"


def test_methods_are_named_by_the_options_of_who_played(tmp_path: Path) -> None:
    """An object is not called by the options of the selector that the scenario names."""

    class Sized(FedAvg):
        name = "sized"

        def __init__(self, size=1, *, rule=max) -> None:
            self.size, self.rule = size, rule

    named = SMALL.model_copy(update={"selector": SelectorSection(name="oort", options={"cut_off": 0.5})})
    given = [None, Oort(cut_off=0.7), Oort(), WithoutRanking(), Sized(3), Sized(rule=min), Eafl(cut_off=0.1)]
    names = [method_name(run(named, selector=one, out=tmp_path)) for one in given]
    assert names == [
        "oort (cut_off=0.5)",
        "oort (cut_off=0.7)",
        "oort",
        "fedrank_minus_p",
        "sized (size=3)",
        "sized (rule=builtin_function_or_method)",
        "eafl (cut_off=0.1)",
    ]


def test_a_policy_file_is_named_by_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "own.safetensors"
    write_policy(path, any_policy("fedrank"))
    found = run(SMALL, selector=FedRank(policy=str(path)), out=tmp_path / "runs")
    assert method_name(found) == f"fedrank (policy=own.safetensors:{any_policy('fedrank').sha256[:8]})"


def test_a_selector_given_again_begins_again(tmp_path: Path) -> None:
    """A loop over seeds with one object must not carry what it learnt from run to run."""
    oort = Oort()
    first, second = (run(SMALL, selector=oort, seed=1, out=tmp_path) for _ in range(2))
    assert first.clients.equals(second.clients)
    own = run(SMALL, selector=Oort(), seed=1, out=tmp_path)
    assert own.clients.equals(first.clients)


def test_several_selectors_and_seeds_as_one_run(tmp_path: Path) -> None:
    """Their tables are joined, and the folder is one that the command line takes."""
    found = run_all("quick", selectors=["fedavg", "oort"], seeds=[3, 4], out=tmp_path)
    assert [(one.record.selector, one.record.seed) for one in found.results] == [
        ("fedavg", 3), ("fedavg", 4), ("oort", 3), ("oort", 4),
    ]  # fmt: skip
    rounds = found.rounds
    assert len(rounds) == sum(len(one.rounds) for one in found.results)
    assert set(rounds["selector"]) == {"fedavg", "oort"}
    alone = run("quick", seed=3, selector=FedAvg(), out=tmp_path)
    same = rounds[(rounds["selector"] == "fedavg") & (rounds["seed"] == 3)]
    assert same["energy_j"].tolist() == alone.rounds["energy_j"].tolist()
    compared = compare_emulations(found.path)
    assert "fedavg" in str(compared)
    assert set(compared.frame()["method"]) == {"fedavg", "oort"}
    assert compare_emulations([str(found.path)]).frame().equals(compared.frame())
