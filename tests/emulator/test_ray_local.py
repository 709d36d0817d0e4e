"""Stacks, errors, sweeps and the command on a Ray that joulefleet starts itself."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from device_agents.workloads.tasks import TASKS, Task
from emulator.own_code import use_code
from emulator.round.outcome import RoundOutcome
from emulator.runs.batch import plan, play, start
from emulator.runs.planning import BatchEntry, BatchIndex
from emulator.runs.result import Result
from emulator.scale import actor_pool
from emulator.scale.cluster import Cluster, connected
from emulator.scale.ray_sweep import play_sweep
from emulator.scale.ray_trainer import open_ray_trainer
from emulator.scenario.model import FleetSection, ProtocolSection, Scenario, TaskSection, TrainerSection
from harness.cli import run as joulefleet
from joulefleet.errors import ConfigError, JoulefleetError
from joulefleet.runstore import Run
from tests.conftest import REPOSITORY
from tests.emulator.own_files import RENTS, nothing_given, written
from tests.emulator.plain_training import ids
from tests.emulator.ray_here import assert_same, here, on_ray, prepare, two_rounds

__all__ = ["nothing_given"]  # a fixture

MLP = TASKS["digits-mlp"]

# One Ray for all of them, and never beside the other module's.
pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        prepare(patch)
        with connected(num_cpus=2, object_store_memory=100 * 2**20) as found:
            yield found


def test_the_bits_of_stacked_training(cluster: Cluster) -> None:
    stacked = on_ray(MLP, implementation="batched", workers=1)
    assert_same(two_rounds(stacked), here(MLP, implementation="batched"))
    assert stacked.implementation == "batched"
    stacked.close()


@pytest.mark.parametrize("net", ["Augmented", "Noisy"])
def test_the_bits_of_a_model_that_draws(cluster: Cluster, net: str) -> None:
    task = Task(net, f"tests.emulator.random_nets:{net}", "digits", (1, 8, 8), 10, smallest_batch=2)
    drawing = on_ray(task, implementation="batched", workers=2)
    assert drawing.implementation == "cpu"
    assert "draws random numbers" in drawing.note
    assert_same(two_rounds(drawing), here(task, implementation="cpu"))
    drawing.close()


def test_work_that_ends_every_actor_ends_the_run_and_says_so(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor_pool, "ATTEMPTS", 2)
    task = Task("ends", "tests.emulator.faulty_nets:Ends", "", (4,), 3)
    faulty = on_ray(task, implementation="cpu", workers=1)
    faulty.begin(1, faulty.initial())
    with pytest.raises(JoulefleetError, match="the same work ended 2 Ray actors") as error:
        faulty.train(ids(0), ids(1))
    assert "memory" in error.value.hint
    faulty.close()


def test_an_error_in_an_actor_comes_back_with_its_cause(cluster: Cluster) -> None:
    task = Task("fails", "tests.emulator.faulty_nets:Fails", "", (4,), 3)
    faulty = on_ray(task, implementation="cpu", workers=1)
    faulty.begin(1, faulty.initial())
    with pytest.raises(JoulefleetError, match="seven is not a prime"):
        faulty.train(ids(0), ids(1))
    with pytest.raises(ConfigError, match="there is no client 6"):
        faulty.train(ids(6), ids(1))
    with pytest.raises(ConfigError, match="at least one actor"):
        on_ray(MLP, workers=0)
    faulty.close()


SMALL = Scenario(
    name="small",
    fleet=FleetSection(devices=12, speed_spread=0.3),
    task=TaskSection(name="digits-mlp"),
    protocol=ProtocolSection(rounds=3, k=3, candidates=6),
    trainer=TrainerSection(kind="cpu"),
)
STORED = ("rounds.parquet", "clients.parquet", "devices.parquet", "emulation.json")


def test_a_sweep_is_what_playing_one_by_one_is(cluster: Cluster, tmp_path: Path) -> None:
    other = SMALL.model_copy(update={"name": "other", "trainer": TrainerSection(kind="surrogate")})
    plans = [plan(SMALL, ["fedavg"], [0]), plan(other, ["oort"], [0, 1])]
    done: list[tuple[str, int, int]] = []
    with start(tmp_path / "ray", plans[0], "") as one, start(tmp_path / "ray", plans[1], "") as two:
        with pytest.raises(InterruptedError):
            play(one, plans[0], _interrupt)
        found = play_sweep(
            list(zip((one, two), plans, strict=True)), lambda p, n, of: done.append((p.folder, n, of))
        )
    assert [number for _, number, _ in done] == [1, 2, 3]
    for index, results in zip(plans, found, strict=True):
        with start(tmp_path / "here", index, "") as run:
            expected = play(run, index)
        for result, other_result in zip(results, expected, strict=True):
            assert result.path.name == other_result.path.name
            for name in STORED:
                assert (result.path / name).read_bytes() == (other_result.path / name).read_bytes(), name
            names = [sorted(path.name for path in r.path.iterdir()) for r in (result, other_result)]
            assert names[0] == names[1]


def test_variants_are_tasks_and_one_that_cannot_be_played_stops_no_other(
    cluster: Cluster, tmp_path: Path
) -> None:
    surrogate = SMALL.model_copy(update={"trainer": TrainerSection(kind="surrogate")})
    names = ["nosuch", "digits-mlp", "digits-softmax"]
    index = plan(surrogate, None, [0], {"task.name": names, "protocol.k": [2, 3]})
    places = {}
    for place, way in {"here": play, "ray": _by_sweep}.items():
        with pytest.raises(ConfigError, match="2 of 6 emulations cannot be played"):  # noqa: SIM117
            with start(tmp_path / place, index, "") as run:
                way(run, index)
        places[place] = run.path
    for planned in index.planned[2:]:
        for name in STORED:
            files = [path / planned.folder / name for path in places.values()]
            assert files[0].read_bytes() == files[1].read_bytes(), name


def test_a_task_of_the_users_own_goes_to_the_nodes_with_its_file(cluster: Cluster, tmp_path: Path) -> None:
    """By actors that share a round's clients, and by tasks of one emulation each: the same bytes as here."""
    use_code(written(tmp_path, "own_rents.py", RENTS))
    section = TaskSection(name="own_rents")
    index = plan(SMALL.model_copy(update={"task": section}), ["fedavg"], [0])
    folders = []
    for place, way in {"here": play, "actors": _by_actors, "sweep": _by_sweep}.items():
        with start(tmp_path / place, index, "") as run:
            folders.append(way(run, index)[0].path)
    first = (folders[0] / "rounds.parquet").read_bytes()
    assert all((folder / "rounds.parquet").read_bytes() == first for folder in folders)


def _by_actors(run: Run, index: BatchIndex) -> list[Result]:
    return play(run, index, open_trainer=open_ray_trainer)


def _by_sweep(run: Run, index: BatchIndex) -> list[Result]:
    return play_sweep([(run, index)])[0]


def _interrupt(planned: BatchEntry, outcome: RoundOutcome) -> None:
    if outcome.round == 2:
        raise InterruptedError


def test_the_command_on_a_cluster(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import ray

    file = tmp_path / "small.toml"
    file.write_text(
        'name = "small"\n[fleet]\ndevices = 12\n[task]\nname = "digits-mlp"\n'
        '[protocol]\nrounds = 2\nk = 3\n[trainer]\nkind = "cpu"\n'
    )
    address = ray.get_runtime_context().gcs_address
    asked = ["emulate", str(file), "--json", "--root", str(tmp_path)]
    assert joulefleet(asked) == 0
    on_this_machine = json.loads(capsys.readouterr().out)
    # Another process: this one is connected already.
    command = [sys.executable, "-m", "harness", *asked, "--engine", "ray", "--ray-address", address]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    on_cluster = json.loads(done.stdout)
    assert "2 of 2 CPUs on 1 node, object store" in done.stderr
    assert on_cluster["ray"]["cpus"] == 2
    assert on_cluster["emulations"] == on_this_machine["emulations"]
    for name in STORED:
        one, other = (Path(data["path"]) / "fedavg_s0" / name for data in (on_this_machine, on_cluster))
        assert one.read_bytes() == other.read_bytes()


def test_one_cluster_at_a_time(cluster: Cluster) -> None:
    with pytest.raises(JoulefleetError, match="connected to a Ray cluster already"), connected():
        pass
