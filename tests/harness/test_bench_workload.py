"""What the devices of a bench are given to train on."""

import numpy as np
import pytest
from pydantic import ValidationError

from device_agents.payload.tensors import unpack_arrays
from emulator.data.sources import load_data_set
from harness.bench.job.workload import Workloads
from harness.bench.matrix import Cell
from harness.bench.plan import Plan, PlannedLoad
from harness.probing.plan import ProbingPlan
from joulefleet.errors import ConfigError

CELL = Cell("a", "digits-mlp", "torch", PlannedLoad(name="none", cpu_share=0))


def workload(**changes: object):
    plan = Plan(**{"models": ("digits-mlp",), "backends": ("torch",), "samples": 200, **changes})  # type: ignore[arg-type]
    return Workloads(plan, [CELL]).of(CELL).work


def test_random_samples_are_made_on_the_device() -> None:
    assert workload().shard is None


def test_real_samples_are_those_that_federated_training_uses() -> None:
    shard = workload(data="real").shard
    assert shard is not None
    sent = unpack_arrays(shard)
    assert sent["x"].shape[0] == len(sent["y"]) == 200
    data = load_data_set("digits")
    everything = {(x.tobytes(), int(y)) for x, y in zip(data.inputs(data.train.x), data.train.y, strict=True)}
    found = {(x.tobytes(), int(y)) for x, y in zip(sent["x"], sent["y"], strict=True)}
    assert found <= everything
    assert len(found) > 190  # drawn without replacement; a few images are in the data set twice
    assert len(set(np.unique(sent["y"]))) == 10


def test_the_draw_hangs_on_the_seed_alone() -> None:
    first, again, other = (workload(data="real", seed=seed).shard for seed in (1, 1, 2))
    assert first == again != other


def test_more_samples_than_there_are() -> None:
    with pytest.raises(ConfigError, match=r"digits has 1,258 training samples, the plan asks for 2,000"):
        workload(data="real", samples=2000)


@pytest.mark.parametrize("kind", [Plan, ProbingPlan])
def test_softmax_has_no_data_set(kind: type) -> None:
    common = {"samples": 10, "data": "real"}
    plan = {"models": ("softmax",), "backends": ("numpy",)}
    probing = {"task": "softmax", "backend": "numpy", "candidates": (2,), "chosen": (1,)}
    with pytest.raises(ValidationError, match="'softmax' has no data set"):
        kind(**common, **(plan if kind is Plan else probing))


def test_a_probing_plan_hands_it_on() -> None:
    plan = ProbingPlan(task="digits-mlp", backend="torch", candidates=(2,), chosen=(1,), data="real")
    assert plan.bench().data == "real"
