"""Tasks, selectors, rewards and aggregations of the user's own, from a file or from an installed package."""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emulator
from device_agents.onnx_export.step import export_step
from device_agents.workloads import METRICS, Task, loss_of, metric_sums, metric_value
from emulator.compare.load import compare_emulations
from emulator.own_code import find_task, use_code
from emulator.runs.batch import plan, play, start
from emulator.scenario.load import load_scenario
from emulator.scenario.model import Scenario, TrainerSection
from harness.cli import run as joulefleet
from joulefleet.errors import ConfigError, DataQualityError
from tests.emulator.own_files import RENTS, TOKENS, nothing_given, written

__all__ = ["nothing_given"]  # a fixture


def small(**task: Any) -> Scenario:
    return Scenario.model_validate(
        {
            "name": "small",
            "fleet": {"devices": 12},
            "task": task,
            "protocol": {"rounds": 3, "k": 3, "candidates": 6, "local_epochs": 2},
            "trainer": {"workers": 1},
        }
    )


def tables(folder: Path) -> dict[str, bytes]:
    names = ("rounds.parquet", "clients.parquet", "devices.parquet")
    return {name: (folder / name).read_bytes() for name in names}


def test_a_regression_is_learned_and_less_is_better(tmp_path: Path) -> None:
    code = written(tmp_path, "rents.py", RENTS)
    found = emulator.run_all(
        small(), selectors=["fedavg", "oort"], seeds=[0, 1], code=[code], out=tmp_path / "o"
    )
    one = found.results[0]
    assert one.record.metric == METRICS["mae"]
    assert one.record.test_accuracy is None
    rounds = one.rounds
    assert {"mae", "mae_gain", "test_mae"} <= set(rounds.columns)
    assert rounds["test_mae"].iloc[-1] < rounds["test_mae"].iloc[0]
    assert one.record.tested == pytest.approx(rounds["test_mae"].iloc[-1])
    # A smaller error is a gain, as a share of what it was.
    values = rounds["mae"].to_numpy()
    np.testing.assert_allclose(rounds["mae_gain"].to_numpy()[1:], 1 - values[1:] / values[:-1])
    table = compare_emulations(found.path)
    means = {method: cells["accuracy"].value.mean for method, cells in table.comparison.cells.items()}
    ranks = {method: cells["accuracy"].rank for method, cells in table.comparison.cells.items()}
    assert (
        sorted(means, key=lambda m: means[m])[0] == min(ranks, key=lambda m: ranks[m])
        or len(set(ranks.values())) == 1
    )
    assert "mae, last 10 tested rounds (less is better)" in str(table)
    assert set(table.frame()["metric"]) >= {"mae", "best_mae"}
    easy, hard = (compare_emulations(found.path, target=target) for target in (100.0, 1e-9))
    assert all(cells["time_to_target_s"].reached == 2 for cells in easy.comparison.cells.values())
    assert all(cells["time_to_target_s"].reached == 0 for cells in hard.comparison.cells.values())


def test_tokens_are_predicted_one_by_one_and_dealt_out_by_group(tmp_path: Path) -> None:
    code = written(tmp_path, "tokens.py", TOKENS)
    result = emulator.run(small(partition="natural"), code=[code], out=tmp_path / "o")
    perplexity = result.rounds["test_perplexity"]
    assert 1 < perplexity.iloc[-1] < perplexity.iloc[0] <= 12
    loss = result.rounds["loss"]
    np.testing.assert_allclose(np.exp(loss), result.rounds["perplexity"])


SEVERAL = """
import numpy as np
import torch
from torch import nn

higher_is_better = False


def data():
    x = np.random.default_rng(0).normal(size=(240, 6)).astype("float32")
    return x, x


class model(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(6, 4), nn.Linear(2, 6)

    def forward(self, x):
        mean, spread = self.into(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * spread.exp() if self.training else mean
        return {"x": self.out(z), "code": (mean, spread)}


def loss(output, y):
    mean, spread = output["code"]
    return ((output["x"] - y) ** 2).mean(1) + (mean**2 + (2 * spread).exp() - 2 * spread - 1).mean(1) / 20


def squared(output, y):
    return ((output["x"] - y) ** 2).mean(1)


metric = squared
"""


def test_a_model_may_give_several_tensors(tmp_path: Path) -> None:
    """A variational autoencoder: the loss and the metric get what the model gives."""
    code = written(tmp_path, "several.py", SEVERAL)
    found = emulator.run(small(learning_rate=0.1), code=[code], out=tmp_path / "o").rounds["test_squared"]
    assert found.iloc[-1] < found.iloc[0]
    half = TrainerSection(workers=1, precision="bfloat16")
    scenario = small(learning_rate=0.1).model_copy(update={"trainer": half})
    rough = emulator.run(scenario, code=[code], out=tmp_path / "h").rounds["test_squared"]
    np.testing.assert_allclose(rough, found, rtol=0.02)
    assert list(rough) != list(found)
    assert b"draw/normal/0" in export_step(find_task("several"), 4)


def test_the_sums_of_every_metric_are_those_of_the_whole() -> None:
    import torch

    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.normal(size=(50, 2)).astype("f4"))
    output = y + torch.from_numpy(rng.normal(size=(50, 2)).astype("f4"))
    errors = (output - y).double().numpy()
    r2 = 1 - (errors**2).sum() / ((y.double().numpy() - y.double().numpy().mean()) ** 2).sum()
    expected = {"mae": np.abs(errors).mean(), "rmse": np.sqrt((errors**2).mean()), "r2": r2}
    for name, value in expected.items():
        task = Task("t", "m", "d", (2,), 0, loss="mse", metric=METRICS[name], target_shape=(2,))
        pieces = [slice(0, 13), slice(13, 50)]
        sums = sum(metric_sums(task, output[p], y[p], loss_of(task)(output[p], y[p])) for p in pieces)
        assert metric_value(task, 50, sums.tolist()) == pytest.approx(value, rel=1e-6)  # type: ignore[union-attr]
        assert math.isnan(metric_value(task, 0, ()))


def test_a_column_against_a_row_does_not_become_a_matrix() -> None:
    import torch

    task = Task("t", "m", "d", (2,), 0, loss="mse")
    output, y = torch.tensor([[1.0], [5.0]]), torch.tensor([2.0, 5.0])
    assert loss_of(task)(output, y).tolist() == [1.0, 0.0]


OWN_PARTS = (
    RENTS
    + """

def loss(output, y):
    return (output[:, 0] - y).abs()


def within_one(output, y):
    return ((output[:, 0] - y).abs() < 1).float()


metric = within_one
"""
)


def test_a_loss_and_a_metric_of_ones_own_on_two_workers(tmp_path: Path) -> None:
    code = written(tmp_path, "rents.py", OWN_PARTS)
    one = emulator.run(small(), code=[code], out=tmp_path / "o")
    two = small().model_copy(update={"trainer": small().trainer.model_copy(update={"workers": 2})})
    other = emulator.run(two, code=[code], out=tmp_path / "o")
    assert tables(one.path) == tables(other.path)
    assert one.record.metric.name == "within_one"
    assert one.record.metric.higher_is_better
    assert one.rounds["test_within_one"].between(0, 1).all()
    assert one.rounds["loss"].iloc[-1] < one.rounds["loss"].iloc[0]


def test_a_loss_for_the_whole_batch_serves_methods_that_need_no_more(tmp_path: Path) -> None:
    text = RENTS + "\n\ndef loss(output, y):\n    return ((output[:, 0] - y) ** 2).mean()\n"
    code = written(tmp_path, "rents.py", text)
    result = emulator.run(small(), code=[code], out=tmp_path / "o")
    assert result.record.tested is not None
    with pytest.raises(ConfigError, match="'oort' goes by a loss per sample"):
        emulator.run_all(small(), selectors=["oort"], code=[code], out=tmp_path / "o")


@pytest.mark.parametrize(
    ("selector", "goes_by"),
    [
        ("tifl", "judged by mae"),
        ("favor", "judged by mae"),
        ("fed_cbs", "classes"),
        ("class_coverage_oracle", "labels"),
    ],
)
def test_methods_that_a_task_cannot_serve_are_refused(tmp_path: Path, selector: str, goes_by: str) -> None:
    code = written(tmp_path, "rents.py", RENTS)
    with pytest.raises(ConfigError, match=goes_by):
        emulator.run_all(small(), selectors=[selector], code=[code], out=tmp_path / "o")


def test_numbers_are_not_dealt_out_by_class(tmp_path: Path) -> None:
    code = written(tmp_path, "rents.py", RENTS)
    with pytest.raises(ConfigError, match="goes by classes"):
        emulator.run(small(partition="dir_client"), code=[code], out=tmp_path / "o")


def test_runs_judged_by_different_metrics_are_not_compared(tmp_path: Path) -> None:
    first = emulator.run(small(), code=[written(tmp_path, "rents.py", RENTS)], out=tmp_path / "o")
    other = emulator.run(small(), code=[written(tmp_path, "tokens.py", TOKENS)], out=tmp_path / "o")
    with pytest.raises(DataQualityError, match="different metrics"):
        compare_emulations([first.run_path, other.run_path], mixed=True)


# Who runs the file, and who does not

MARKED = "import pathlib\npathlib.Path({marker!r}).touch()\n" + RENTS


def test_reports_run_no_code_and_resuming_asks_for_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    marker = tmp_path / "was-run"
    code = written(tmp_path, "rents.py", MARKED.format(marker=str(marker)))
    whole = emulator.run(small(), code=[code], out="o")

    def stop(outcome: Any) -> None:
        if outcome.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        emulator.run(small(), code=[code], out="o", on_round=stop)
    cut = max(Path("o").iterdir(), key=lambda path: path.stat().st_mtime)
    assert cut != whole.run_path
    sha256 = json.loads((cut / "index.json").read_text())["scenario"]["code"]["rents.py"]
    assert len(sha256) == 64
    marker.unlink()
    forget(monkeypatch)
    for command in ("report", "compare"):
        assert joulefleet([command, str(whole.run_path)]) == 0
    assert joulefleet(["emulate", "--resume", str(cut)]) == 3
    assert "--code rents.py" in capsys.readouterr().err
    assert not marker.exists()
    code.write_text(code.read_text() + "\n# another\n")
    assert joulefleet(["emulate", "--resume", str(cut), "--code", str(code)]) == 3
    assert "is not the rents.py" in capsys.readouterr().err
    forget(monkeypatch)
    code.write_text(code.read_text().removesuffix("\n# another\n"))
    assert joulefleet(["emulate", "--resume", str(cut), "--code", str(code)]) == 0
    assert marker.exists()
    assert tables(next(cut.glob("*_s0"))) == tables(whole.path)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a new process would have it."""
    from device_agents.workloads import own_code
    from emulator.data.sources import DATA_SETS
    from emulator.own_code import files, find

    monkeypatch.setattr(files, "_given", files.GivenCode())
    monkeypatch.setattr(own_code, "_loaded", {})
    for registry in (DATA_SETS, find.ALL_TASKS):
        monkeypatch.setattr(registry, "given", {})


def test_what_a_file_prints_is_not_in_the_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chatty = "print('as it is run')\n" + RENTS.replace("    return", "    print('as it is used')\n    return")
    path = written(tmp_path, "chatty.py", chatty)
    small = ["--set", "protocol.rounds=1", "--root", str(tmp_path / "o"), "--json"]
    assert joulefleet(["emulate", "quick", "--code", str(path), *small]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["emulations"]
    assert "as it is run" in said.err
    assert "as it is used" in said.err


def test_a_python_file_is_no_scenario(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "rents.py", RENTS)
    for name in (str(path), "nowhere.py"):
        assert joulefleet(["emulate", name, "--root", str(tmp_path / "o")]) == 3
        assert f"`quick --code {name}`" in " ".join(capsys.readouterr().err.split())


def test_a_scenario_that_names_code_does_not_bring_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'name = "theirs"\n[task]\nname = "rents"\n[code]\n"rents.py" = "' + 64 * "a" + '"\n'
    path = written(tmp_path, "theirs.toml", text)
    written(tmp_path, "rents.py", RENTS)
    assert joulefleet(["emulate", str(path), "--root", str(tmp_path / "o")]) == 3
    assert "code that is not stored with it: rents.py (aaaaaaaaaaaa)" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_a_task_of_a_package_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "acme"
    package.mkdir()
    written(package, "__init__.py", "")
    written(package, "rents.py", RENTS.replace("return x, 3", "from acme import rents\n    return x, 3"))
    about = tmp_path / "acme-1.0.dist-info"
    about.mkdir()
    written(about, "METADATA", "Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    written(about, "entry_points.txt", "[joulefleet.tasks]\nacme-rents = acme.rents\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        result = emulator.run(small(name="acme-rents"), out=tmp_path / "o")
    finally:
        for name in ("acme", "acme.rents"):
            sys.modules.pop(name, None)
    assert result.record.facts["task"]["sha256"] == find_task("acme-rents").code.sha256  # type: ignore[union-attr]
    assert result.record.scenario.code is None
    assert result.record.tested is not None


# Selectors, rewards and aggregations

OTHERS = """
import numpy as np

import emulator


class Nearest(emulator.Selector):
    name, family = "nearest", emulator.Family.HEURISTIC

    def select(self, view, candidates, k, rng):
        return candidates[:k]


def frugal(gain, cost, budgets):
    return gain - cost.energy_j / budgets.energy_j


def median(weights, sizes, before):
    return np.median(weights, axis=0)


rewards = {"frugal": frugal}
aggregations = {"median": median}
"""


def test_a_selector_a_reward_and_an_aggregation_from_one_file(tmp_path: Path) -> None:
    given = use_code(written(tmp_path, "mine.py", OTHERS), written(tmp_path, "rents.py", RENTS))
    assert given.selectors == {"nearest": "mine.py"}
    plain = small(name="rents")
    data = plain.model_dump() | {"reward": {"function": "frugal"}, "selector": {"name": "nearest"}}
    data["protocol"]["aggregation"] = "median"
    result = emulator.run(Scenario.model_validate(data), code=[tmp_path / "mine.py"], out=tmp_path / "o")
    assert set(result.record.scenario.code or {}) == {"mine.py", "rents.py"}
    assert result.record.facts["selector_sha256"] == given.files["mine.py"].sha256
    rounds, budget_j = result.rounds, result.record.facts["budgets"]["energy_j"]
    expected = 100 * rounds["mae_gain"] - rounds["energy_j_honest"] / budget_j
    np.testing.assert_allclose(rounds["reward"], expected)
    mean = emulator.run(plain, out=tmp_path / "o", selector=emulator.SELECTORS.load("nearest")())
    assert not np.allclose(mean.rounds["loss"], rounds["loss"])
    assert (mean.clients["device"].to_numpy() == result.clients["device"].to_numpy()).all()


def test_an_aggregation_that_gives_nonsense_is_refused(tmp_path: Path) -> None:
    text = "aggregations = {'bad': lambda weights, sizes, before: weights}"
    use_code(written(tmp_path, "mine.py", text), written(tmp_path, "rents.py", RENTS))
    data = small(name="rents").model_dump()
    data["protocol"]["aggregation"] = "bad"
    with pytest.raises(ConfigError, match=r"gave float32 of shape \(3, 41\)"):
        emulator.run(Scenario.model_validate(data), out=tmp_path / "o")


def test_an_unknown_aggregation_lists_the_known_ones() -> None:
    data = small(name="digits-mlp").model_dump()
    data["protocol"]["aggregation"] = "bysize"
    with pytest.raises(ConfigError, match="no aggregation called 'bysize'") as error:
        emulator.run(Scenario.model_validate(data))
    assert "by_size" in error.value.hint


# Other commands


def test_an_experiment_with_ones_own_task_and_selector(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from emulator.experiments import Preset, plan_experiment

    given = use_code(written(tmp_path, "tokens.py", TOKENS), written(tmp_path, "mine.py", OTHERS))
    made = plan_experiment("table1", Preset.SMOKE, given=given)
    assert {variant.scenario.task.name for variant in made.variants} == {"tokens"}
    assert {variant.scenario.task.partition for variant in made.variants} == {"iid"}
    assert "nearest" in {one.selector for one in made.planned}
    assert all("task tokens instead of digits-mlp" in variant.reductions for variant in made.variants)
    assert all(variant.title.startswith("tokens") for variant in made.variants)
    assert not any("MLP" in variant.title for variant in made.variants)


def test_what_cannot_be_played_is_left_out_of_an_experiment_and_said(tmp_path: Path) -> None:
    from emulator.experiments import Preset, plan_experiment

    given = use_code(written(tmp_path, "rents.py", RENTS))
    made = plan_experiment("table1", Preset.SMOKE, given=given)
    (variant,) = made.variants  # the others deal out by class
    assert variant.scenario.task.partition == "iid"
    assert not {"fedmarl", "tifl", "favor"} & {one.selector for one in made.planned}
    assert any("without fedmarl" in reduction for reduction in variant.reductions)


def test_a_policy_is_not_learnt_where_there_is_no_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = written(tmp_path, "rents.py", RENTS)
    asked = ["policy", "train", "fedmarl", "--code", str(code), "--out", str(tmp_path / "p.safetensors")]
    assert joulefleet([*asked, "--dry-run"]) == 3
    assert "has no classes or no accuracy" in capsys.readouterr().err
    classes = written(
        tmp_path,
        "flats.py",
        RENTS.replace("3 * x[:, 0] - 2 * x[:, 1]", "(x[:, 0] > 0)").replace("8, 1", "8, 2"),
    )
    asked[asked.index(str(code))] = str(classes)
    assert joulefleet([*asked, "--samples", "1", "--dry-run"]) == 0


def test_profiles_are_scaled_to_ones_own_task(tmp_path: Path) -> None:
    from harness.profiles.scale import scale_task
    from power import reference_fleet

    use_code(written(tmp_path, "rents.py", RENTS))
    phone = reference_fleet("digits-mlp")[0]
    scaled = scale_task([phone], "rents", 100)
    assert (scaled.task, scaled.model, scaled.dataset) == ("rents", "rents", "rents")
    assert scaled.epoch.duration_s.mean < phone.epoch.duration_s.mean
    assert scale_task([scaled], "rents", 200).samples == 200


def test_the_reference_fleet_costs_ones_own_task_by_its_arithmetic(tmp_path: Path) -> None:
    code = written(tmp_path, "rents.py", RENTS)
    result = emulator.run(small(), code=[code], out=tmp_path / "o")
    assert result.record.facts["cost_origin"] == "literature"
    assert result.record.facts["model_bytes"] == 41 * 4
    from device_agents.workloads import count_task

    work = count_task(find_task("rents"))
    # Two layers forward, their weights' gradients, and the second layer's input's.
    assert work.forward_flop == 2 * (3 * 8 + 8)
    assert work.training_flop == 2 * (2 * (3 * 8) + 3 * 8)


def test_femnist_is_dealt_out_by_writer(real_file: Callable[[str], Path]) -> None:
    from emulator.data import load_data_set, make_partition

    real_file("femnist-subset/femnist_subset.npz")
    data = load_data_set("femnist", seed=3)
    assert data.train.groups is not None
    writers = make_partition("natural", data.train, 12, 3)
    assert sorted(writers.sizes.tolist())[0] > 100
    for client in range(12):
        assert len(set(data.train.groups[writers.shard(client)].tolist())) == 1


def test_emulating_twice_in_one_plan_gives_the_same(tmp_path: Path) -> None:
    use_code(written(tmp_path, "rents.py", RENTS))
    index = plan(small(name="rents"), ["fedavg"], [0])
    with start(tmp_path / "o", index) as run:
        (first,) = play(run, index)
    again = emulator.run(small(name="rents"), out=tmp_path / "o")
    assert tables(first.path) == tables(again.path)
    assert load_scenario("quick").code is None
