"""A finished run that is extended equals one that was longer from the start; edits of a run are noticed."""

import json
from pathlib import Path
from typing import ClassVar

import pytest

from emulator import BatchResult, Selector, resume, run, run_all
from emulator.round.outcome import RoundOutcome
from emulator.runs import emulation
from emulator.runs.checkpoint import load_checkpoint
from emulator.runs.opening import read_index
from emulator.scenario.model import Scenario
from emulator.selectors.fedavg import FedAvg
from harness.cli import run as joulefleet
from joulefleet.config import parse_toml
from joulefleet.errors import ConfigError, StorageError
from joulefleet.runstore.run import RunStatus, read_run

SCENARIO = """
name = "longer"

[fleet]
devices = 20
speed_spread = 0.3

[protocol]
rounds = {rounds}
k = 3
candidates = 6
test_every = {test_every}

[trainer]
kind = "surrogate"
"""
TRAINED = """
name = "longer"

[fleet]
devices = 6

[task]
name = "digits-softmax"
learning_rate = 0.1

[protocol]
rounds = {rounds}
k = 2
candidates = 4
local_epochs = 1
test_every = {test_every}

[trainer]
kind = "batched"
"""
TABLES = ("rounds.parquet", "clients.parquet", "devices.parquet")
PLANS_BY_ROUNDS = ("oort", "fedrank")


def scenario(rounds: int, test_every: int = 1, text: str = SCENARIO) -> Scenario:
    return parse_toml(text.format(rounds=rounds, test_every=test_every), Scenario, name="test")


def same(one: BatchResult, other: BatchResult) -> None:
    assert [r.path.name for r in one.results] == [r.path.name for r in other.results]
    for mine, longer in zip(one.results, other.results, strict=True):
        assert mine.record == longer.record
        for table in TABLES:
            assert (mine.path / table).read_bytes() == (longer.path / table).read_bytes(), table


@pytest.fixture(autouse=True)
def _every_round_has_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulation, "CHECKPOINT_PERIOD_S", 0.0)


@pytest.mark.parametrize("selector", ["fedavg", *PLANS_BY_ROUNDS])
def test_an_extended_run_equals_a_longer_one(tmp_path: Path, selector: str) -> None:
    longer = run_all(scenario(5), selectors=[selector], out=tmp_path / "longer")
    short = run_all(scenario(3), selectors=[selector], out=tmp_path / "short")
    played: list[int] = []
    extended = resume(short.path, more_rounds=2, on_round=lambda outcome: played.append(outcome.round))
    same(extended, longer)
    # Who plans by the number of rounds would have chosen others from the first one on.
    assert played[-2:] == [4, 5]
    assert (len(played) > 2) == (selector in PLANS_BY_ROUNDS)
    assert read_run(short.path).status is RunStatus.COMPLETE


def test_what_was_tested_as_the_last_round_is_one_among_others(tmp_path: Path) -> None:
    """With real training."""
    longer = run_all(scenario(7, 3, TRAINED), out=tmp_path / "longer")
    short = run_all(scenario(4, 3, TRAINED), out=tmp_path / "short")
    assert short.rounds["test_accuracy"].notna().tolist() == [False, False, True, True]
    extended = resume(resume(short.path, more_rounds=1).path, more_rounds=2)
    assert extended.rounds["test_accuracy"].notna().tolist() == [False, False, True, False, False, True, True]
    same(extended, longer)


def test_an_extension_that_is_killed_goes_on(tmp_path: Path) -> None:
    settings = {"protocol.rounds": [2, 3]}
    longer = run_all(scenario(1), settings={"protocol.rounds": [4, 5]}, seeds=[0, 1], out=tmp_path / "longer")
    short = run_all(scenario(1), settings=settings, seeds=[0, 1], out=tmp_path / "short")
    count = 0

    def stop(_: RoundOutcome) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resume(short.path, more_rounds=2, on_round=stop)
    with pytest.raises(StorageError, match="is not complete"):
        resume(short.path, more_rounds=2)
    extended = resume(short.path)
    assert read_index(short.path).more_rounds == 2
    for mine, other in zip(extended.results, longer.results, strict=True):
        for table in TABLES:
            assert (mine.path / table).read_bytes() == (other.path / table).read_bytes()


def test_one_that_was_killed_before_it_said_so_goes_on(tmp_path: Path) -> None:
    """The plan is longer already, and the run still calls itself complete."""
    short = run_all(scenario(2), out=tmp_path / "short")
    index = short.path / "index.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "more_rounds": 1}))
    assert read_run(short.path).status is RunStatus.COMPLETE
    assert resume(short.path).results[0].record.rounds == 3
    with pytest.raises(StorageError, match="is complete"):
        resume(short.path)


def test_objects_are_given_again(tmp_path: Path) -> None:
    class Mine(FedAvg):
        name: ClassVar[str] = "mine"

    chooser: Selector = Mine()
    longer = run(scenario(4), selector=chooser, out=tmp_path / "longer")
    short = run(scenario(3), selector=chooser, out=tmp_path / "short")
    with pytest.raises(ConfigError, match="begun with selector"):
        resume(short.run_path, more_rounds=1)
    (extended,) = resume(short.run_path, selector=chooser, more_rounds=1).results
    assert extended.record == longer.record


def test_what_a_selector_reads_of_the_plan_is_noted(tmp_path: Path) -> None:
    both = run_all(scenario(2), selectors=["fedavg", "oort"], out=tmp_path)
    noted = {}
    for one in both.results:
        state = load_checkpoint(one.path)
        assert state is not None
        noted[one.record.selector] = state["planned_by_rounds"]
    assert noted == {"fedavg": False, "oort": True}


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "longer.toml"
    file.write_text(SCENARIO.format(rounds=2, test_every=1))
    assert joulefleet(["emulate", str(file), "--root", str(tmp_path / "e")]) == 0
    (path,) = (tmp_path / "e").iterdir()
    assert joulefleet(["emulate", "--resume", str(path)]) == 1
    assert "`--more-rounds N` plays on" in capsys.readouterr().err
    assert joulefleet(["emulate", str(file), "--more-rounds", "1"]) == 2
    assert joulefleet(["emulate", "--resume", str(path), "--more-rounds", "0"]) == 2
    assert joulefleet(["emulate", "--resume", str(path), "--more-rounds", "2", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["emulations"]
    assert found["rounds"] == 4
    with pytest.raises(ConfigError, match="more_rounds is -1"):
        resume(path, more_rounds=-1)


@pytest.mark.parametrize(
    "edit", ["scenario.toml", "scenario.resolved.json", "removed", "emulation", "seed", "index"]
)
def test_edits_of_a_stored_run_are_noticed(
    tmp_path: Path, edit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "longer.toml"
    file.write_text(SCENARIO.format(rounds=4, test_every=1))

    def stop(outcome: RoundOutcome) -> None:
        if outcome.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(file, out=tmp_path / "e", on_round=stop)
    (path,) = (tmp_path / "e").iterdir()
    if edit.startswith("scenario"):
        written = path / "config" / edit
        written.write_text(written.read_text().replace("3", "5"))
    elif edit == "removed":
        (path / "config" / "scenario.toml").unlink()
    elif edit == "index":
        index = path / "index.json"
        index.write_text(index.read_text().replace('"k": 3', '"k": 5'))
    else:
        record = path / "fedavg_s0" / "emulation.json"
        data = json.loads(record.read_text())
        if edit == "seed":
            data["seed"] = 7
        else:
            data["scenario"]["protocol"]["k"] = 5
        record.write_text(json.dumps(data))
    assert joulefleet(["emulate", "--resume", str(path)]) == 3
    said = " ".join(capsys.readouterr().err.split())
    expected = {
        "scenario.toml": "was edited since the run began",
        "scenario.resolved.json": "was edited since the run began",
        "removed": "was removed since the run began",
        "emulation": "is of another scenario than its run (protocol.k)",
        "seed": "is of another scenario than its run (seed)",
        "index": "was started with another configuration",
    }
    assert expected[edit] in said
