"""Training and sweeps on a real Ray of two nodes: the same bits as here, whoever is lost."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from device_agents.workloads.tasks import TASKS, Task
from emulator.batch import Planned, plan, play, start
from emulator.outcome import RoundOutcome
from emulator.scale import crew
from emulator.scale.cluster import Cluster, connected
from emulator.scale.ray_sweep import play_sweep
from emulator.scale.ray_trainer import RayTrainer, open_ray_trainer
from emulator.scenario.model import Fleet, ProtocolSection, Scenario, TaskSection, TrainerSection
from emulator.training.choose import open_trainer
from fedjoule.errors import ConfigError, FedjouleError, MissingExtra
from harness.cli import run as fedjoule
from tests.emulator.plain_training import data_for, ids, shards_of
from tests.emulator.ray_here import TwoNodes, assert_same, everybody, prepare, stop_and_lose, two_rounds

MLP = TASKS["digits-mlp"]
SIZES = (40, 20, 10, 33, 0, 25)

# One Ray for all of them, wherever pytest-xdist puts them.
pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def nodes() -> Iterator[TwoNodes]:
    with pytest.MonkeyPatch.context() as patch:
        prepare(patch)
        two = TwoNodes()
        yield two
        two.close()


@pytest.fixture
def cluster(nodes: TwoNodes) -> Iterator[Cluster]:
    nodes.complete()
    with connected(nodes.address) as found:
        yield found


def on_ray(task: Task = MLP, **options: Any) -> RayTrainer:
    return open_ray_trainer(task, data_for(task, sum(SIZES)), shards_of(*SIZES), seed=1, **options)


def here(task: Task = MLP, **options: Any) -> list[np.ndarray]:
    data = data_for(task, sum(SIZES))
    return two_rounds(open_trainer(task, data, shards_of(*SIZES), seed=1, workers=1, **options))


@pytest.mark.parametrize(("name", "implementation"), [("mnist-lenet5", "cpu"), ("digits-mlp", "batched")])
def test_the_bits_are_those_of_the_same_implementation_here(
    cluster: Cluster, name: str, implementation: str
) -> None:
    options: dict[str, Any] = {"implementation": implementation, "held_out": 0.2}
    trainer = on_ray(TASKS[name], **options)
    everybody(trainer)
    sent = trainer.spent.sent_bytes
    assert_same(two_rounds(trainer), here(TASKS[name], **options))
    assert trainer.implementation == implementation
    assert len({where.node_id for where in trainer.crew.present.values()}) == 2
    # The initial weights were sent before; then each round's once, though used for five things.
    assert trainer.spent.sent_bytes - sent == 2 * trainer.initial().nbytes
    assert trainer.spent.client_epochs == 2 * (6 + 5)
    assert cluster.use()["nodes"] == 2
    trainer.close()


def test_an_actor_killed_in_the_middle_of_a_round_changes_nothing(cluster: Cluster) -> None:
    trainer = on_ray(implementation="cpu")
    everybody(trainer)
    threads = []

    def before(step: str) -> None:
        if step == "train 1":  # it has probed clients, and now gets the rest of their epochs
            process = trainer.crew.present[trainer._home[4]].process
            threads.append(stop_and_lose(process, lambda: os.kill(process, signal.SIGKILL)))

    assert_same(two_rounds(trainer, before), here(implementation="cpu"))
    assert trainer.crew.lost == 1
    everybody(trainer)  # Ray has started it again
    threads[0].join()
    trainer.close()


def test_a_lost_node_changes_nothing_though_nobody_has_room_for_its_actor(
    cluster: Cluster, nodes: TwoNodes
) -> None:
    trainer = on_ray(implementation="cpu")
    everybody(trainer)
    threads = []

    def before(step: str) -> None:
        if step == "probe 2":
            processes = {where.node_id: where.process for where in trainer.crew.present.values()}
            threads.append(stop_and_lose(processes[nodes.other_id], nodes.lose_the_other))

    assert_same(two_rounds(trainer, before), here(implementation="cpu"))
    threads[0].join()
    assert trainer.crew.lost == 1
    assert len(trainer.crew.present) == 1
    nodes.complete()
    everybody(trainer)  # as an autoscaler would have it
    trainer.close()


def test_nothing_is_left_in_the_object_store(cluster: Cluster) -> None:
    trainer = on_ray(TASKS["mnist-lenet5"], implementation="cpu")
    weights, used = trainer.initial(), []
    for number in range(1, 7):
        trainer.begin(number, weights)
        trainer.train(ids(0, 1, 2), ids(1, 1, 1))
        weights = trainer.aggregate(ids(0, 1, 2), np.full(3, 1 / 3))
        trainer.end()
        used.append(settled(lambda: cluster.use()["object_store_bytes_taken"]))
    # Each round sends one set of weights and receives three.
    assert used[-1] - used[1] < weights.nbytes, used
    assert used[0] > 0
    trainer.close()


def settled(read: Callable[[], int]) -> int:
    """A number that Ray's nodes report now and then, when it has not changed for a second."""
    value, since_s = read(), time.monotonic()
    while time.monotonic() - since_s < 1:
        time.sleep(0.1)
        if (now := read()) != value:
            value, since_s = now, time.monotonic()
    return value


def test_work_that_ends_every_actor_ends_the_run_and_says_so(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "ATTEMPTS", 2)
    task = Task("ends", "tests.emulator.faulty_nets:Ends", "", (4,), 3)
    trainer = on_ray(task, implementation="cpu")
    trainer.begin(1, trainer.initial())
    with pytest.raises(FedjouleError, match="the same work ended 2 Ray actors") as error:
        trainer.train(ids(0), ids(1))
    assert "memory" in error.value.hint
    trainer.close()


def test_an_error_in_an_actor_comes_back_with_its_cause(cluster: Cluster) -> None:
    trainer = on_ray(Task("fails", "tests.emulator.faulty_nets:Fails", "", (4,), 3), implementation="cpu")
    trainer.begin(1, trainer.initial())
    with pytest.raises(FedjouleError, match="seven is not a prime"):
        trainer.train(ids(0), ids(1))
    with pytest.raises(ConfigError, match="there is no client 6"):
        trainer.train(ids(6), ids(1))
    with pytest.raises(ConfigError, match="at least one actor"):
        on_ray(workers=0)
    trainer.close()


SMALL = Scenario(
    name="small",
    fleet=Fleet(devices=12, speed_spread=0.3),
    task=TaskSection(name="digits-mlp"),
    protocol=ProtocolSection(rounds=3, k=3, candidates=6),
    trainer=TrainerSection(kind="cpu"),
)
STORED = ("rounds.parquet", "clients.parquet", "emulation.json")


def test_a_sweep_is_what_playing_one_by_one_is(cluster: Cluster, tmp_path: Path) -> None:
    other = SMALL.model_copy(update={"name": "other", "trainer": TrainerSection(kind="surrogate")})
    plans = [plan(SMALL, ["fedavg", "fedrank"], [0]), plan(other, ["oort"], [0, 1])]
    done: list[tuple[str, int, int]] = []
    with start(tmp_path / "ray", plans[0], "") as one, start(tmp_path / "ray", plans[1], "") as two:
        with pytest.raises(InterruptedError):
            play(one, plans[0], _interrupt)
        found = play_sweep(
            list(zip((one, two), plans, strict=True)), lambda p, n, of: done.append((p.folder, n, of))
        )
    assert [number for _, number, _ in done] == [1, 2, 3, 4]
    for index, results in zip(plans, found, strict=True):
        with start(tmp_path / "here", index, "") as run:
            expected = play(run, index)
        for result, other_result in zip(results, expected, strict=True):
            assert result.path.name == other_result.path.name
            for name in STORED:
                assert (result.path / name).read_bytes() == (other_result.path / name).read_bytes(), name
            names = [sorted(path.name for path in r.path.iterdir()) for r in (result, other_result)]
            assert names[0] == names[1]


def _interrupt(planned: Planned, outcome: RoundOutcome) -> None:
    if outcome.round == 2:
        raise InterruptedError


def test_the_command_on_a_cluster(
    nodes: TwoNodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes.complete()
    file = tmp_path / "small.toml"
    file.write_text(
        'name = "small"\n[fleet]\ndevices = 12\n[task]\nname = "digits-mlp"\n'
        '[protocol]\nrounds = 2\nk = 3\n[trainer]\nkind = "cpu"\n'
    )
    found = {}
    for engine in (["local"], ["ray", "--ray-address", nodes.address]):
        root = tmp_path / engine[0]
        assert fedjoule(["emulate", str(file), "--engine", *engine, "--root", str(root), "--json"]) == 0
        captured = capsys.readouterr()
        found[engine[0]] = json.loads(captured.out)
    assert "2 of 2 CPUs on 2 nodes" in captured.err
    assert found["ray"]["ray"]["nodes"] == 2
    assert found["ray"]["emulations"] == found["local"]["emulations"]
    for name in STORED:
        one, other = (Path(data["path"]) / "fedavg_s0" / name for data in found.values())
        assert one.read_bytes() == other.read_bytes()


def test_without_a_cluster_nothing_is_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["emulate", "quick", "--engine", "ray", "--root", str(tmp_path / "e")]
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ray", None)
        assert fedjoule(asked) == MissingExtra.exit_code
        assert "fedjoule[scale]" in capsys.readouterr().err
    assert fedjoule([*asked, "--ray-address", "nonsense"]) == FedjouleError.exit_code
    assert "no Ray cluster at nonsense" in capsys.readouterr().err
    assert not (tmp_path / "e").exists()
