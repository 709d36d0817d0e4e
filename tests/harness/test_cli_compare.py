"""``joulefleet compare`` over stored emulations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli import run

SCENARIO = """
name = "{name}"

[fleet]
devices = 12

[task]
name = "digits-softmax"
learning_rate = 0.1

[protocol]
rounds = {rounds}
k = 3
local_epochs = 1

[trainer]
workers = 1
"""


def emulated(folder: Path, selectors: str, seeds: str, rounds: int = 2) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{selectors.replace(',', '-')}.toml"
    file.write_text(SCENARIO.format(name="small", rounds=rounds))
    arguments = ["emulate", str(file), "--selector", selectors, "--seeds", seeds]
    assert run([*arguments, "--root", str(folder / "runs")]) == 0
    return folder / "runs"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return emulated(tmp_path_factory.mktemp("compare"), "fedavg,oort", "0-1")


def test_methods_side_by_side(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(runs)]) == 0
    out = capsys.readouterr().out
    assert "vs fedavg" in out
    assert "vs oort" in out, "the best heuristic is a reference too"
    assert "2 paired seeds: fewer than 5" in out
    assert "marginal energy, costs literature" in out
    assert "accounting honest, seeds 0, 1" in out
    assert "target taken from these runs, not fixed in advance" in out


def test_as_data(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(runs), "--target", "0.999", "--accounting", "free", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["target"], data["accounting"], data["seeds"]) == (0.999, "free", [0, 1])
    assert data["methods"]["oort"]["time_to_target_s"]["reached"] == 0
    assert any("not reached in 2 of 2 runs" in warning for warning in data["warnings"])
    assert "in advance" not in data["basis"]


@pytest.mark.parametrize(
    ("form", "sign"), [("csv", "metric,method"), ("latex", r"\toprule"), ("markdown", "| --- |")]
)
def test_other_forms(runs: Path, form: str, sign: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(runs), "--format", form, "--metric", "accuracy"]) == 0
    shown = capsys.readouterr()
    assert sign in shown.out
    assert "fedavg" in shown.out
    # Where the answer goes to a file, who calls is told all the same.
    warned = shown.out if form == "markdown" else shown.err
    assert "2 paired seeds: fewer than 5" in warned


def test_named_pairs_and_classes_per_cohort(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--metric", "classes_per_cohort", "--pair", "oort", "fedavg"]
    assert run(["compare", str(runs), *asked]) == 0
    out = capsys.readouterr().out
    assert "classes per cohort" in out
    assert "oort vs fedavg" in out
    assert run(["compare", str(runs), "--pair", "oort", "fedrank"]) == 6
    assert "there are: fedavg, oort" in capsys.readouterr().err


def test_unequal_scenarios_are_not_compared_unasked(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = emulated(tmp_path, "random_by_size", "0-1", rounds=3)
    capsys.readouterr()
    assert run(["compare", str(runs), str(other)]) == 6
    refused = capsys.readouterr()
    assert "the scenarios differ (protocol)" in refused.err
    assert "--mixed" in refused.err
    assert not refused.out
    assert run(["compare", str(runs), str(other), "--mixed"]) == 0
    assert "the scenarios differ (protocol)" in capsys.readouterr().out


def test_what_is_there_twice_does_not_decide_the_target(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = emulated(tmp_path, "fedavg", "0-1", rounds=3)
    capsys.readouterr()
    assert run(["compare", str(runs), "--json"]) == 0
    target = json.loads(capsys.readouterr().out)["target"]
    assert run(["compare", str(runs), str(other), "--mixed", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["target"] == target
    assert sum("is there twice; the first counts" in warning for warning in found["warnings"]) == 2


def test_a_run_given_twice_counts_once(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(runs), str(runs), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["methods"]["fedavg"]["accuracy"]["seeds"] == 2


def test_unfinished_runs_are_left_out(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = emulated(tmp_path, "random_by_size", "0-1")
    record = next(other.rglob("emulation.json"))
    stored = json.loads(record.read_text())
    record.write_text(json.dumps({**stored, "rounds": None}))
    capsys.readouterr()
    assert run(["compare", str(runs), str(other)]) == 0
    assert "not finished, left out" in capsys.readouterr().out


def test_a_folder_without_emulations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(tmp_path)]) == 6
    assert "no emulation here" in capsys.readouterr().err
