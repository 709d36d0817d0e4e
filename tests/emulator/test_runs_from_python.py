"""A run of `emulator.run` is one of the command line, and the other way round: each goes on with either."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

import emulator
from emulator.round.outcome import RoundOutcome
from emulator.runs import emulation
from emulator.runs.result import load_result
from emulator.scenario.load import load_scenario
from emulator.selectors.fedavg import FedAvg
from harness.cli import run as joulefleet
from joulefleet.errors import ConfigError, StorageError
from tests.emulator.worlds import profile

SCENARIO = """
name = "small"

[fleet]
devices = 20
speed_spread = 0.3

[protocol]
rounds = 6
k = 3
candidates = 6

[selector]
name = "oort"

[trainer]
kind = "surrogate"
"""
TABLES = ("rounds.parquet", "clients.parquet", "devices.parquet")


class Mine(FedAvg):
    """A method under development."""

    name: ClassVar[str] = "my method/2"


def scenario(folder: Path) -> str:
    file = folder / "scenario.toml"
    file.write_text(SCENARIO)
    return str(file)


def logs(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in TABLES}


def stop(outcome: RoundOutcome) -> None:
    if outcome.round == 3:
        raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def _every_round_has_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulation, "CHECKPOINT_PERIOD_S", 0.0)


def test_begun_in_python_and_resumed_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = scenario(tmp_path)
    whole = emulator.run(file, seed=4, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        emulator.run(file, seed=4, out=tmp_path / "cut", on_round=stop)
    (cut,) = (tmp_path / "cut").iterdir()
    assert (cut / "config" / "scenario.toml").read_text() == SCENARIO
    assert joulefleet(["emulate", "--resume", str(cut)]) == 0
    result = load_result(cut / "oort_s4")
    assert logs(result.path) == logs(whole.path)
    assert result.record == whole.record
    assert (result.run_path, whole.run_path.parent) == (cut, tmp_path / "whole")
    capsys.readouterr()
    for command in ("report", "compare"):
        assert joulefleet([command, str(cut)]) == 0
    assert joulefleet(["export", str(cut), "--tensorboard", str(tmp_path / "logs")]) == 0
    assert (cut / "report.html").is_file()


def test_begun_on_the_command_line_and_resumed_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = scenario(tmp_path)
    arguments = ["emulate", file, "--selector", "oort,fedavg", "--root"]
    assert joulefleet([*arguments, str(tmp_path / "whole")]) == 0

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(emulation, "save_checkpoint", killed)
        assert joulefleet([*arguments, str(tmp_path / "cut")]) == 130
    (whole,), (cut,) = (tmp_path / "whole").iterdir(), (tmp_path / "cut").iterdir()
    seen: list[int] = []
    results = emulator.resume(cut, on_round=lambda outcome: seen.append(outcome.round)).results
    assert [result.path.name for result in results] == ["oort_s0", "fedavg_s0"]
    assert seen == [1, 2, 3, 4, 5, 6] * 2
    for result in results:
        assert logs(result.path) == logs(whole / result.path.name)


def test_what_no_file_describes_has_to_be_given_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, phones = scenario(tmp_path), [profile(20.0, 30.0)]
    whole = emulator.run(file, selector=Mine(), profiles=phones, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        emulator.run(file, selector=Mine(), profiles=phones, out=tmp_path / "cut", on_round=stop)
    (cut,) = (tmp_path / "cut").iterdir()
    assert joulefleet(["emulate", "--resume", str(cut)]) == 3
    told = " ".join(capsys.readouterr().err.split())
    assert "selector and profiles given as Python objects" in told
    assert "selector=..., profiles=...)" in told
    assert joulefleet(["compare", str(cut)]) == 6
    assert "emulator.resume(" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="now with selector"):
        emulator.resume(cut, selector=Mine())
    (result,) = emulator.resume(cut, selector=Mine(), profiles=phones).results
    assert result.record.selector == "my method/2"
    assert result.path.name == "my-method-2_s0"
    assert logs(result.path) == logs(whole.path)


def test_a_scenario_made_in_python_needs_no_file(tmp_path: Path) -> None:
    made = load_scenario(scenario(tmp_path))
    result = emulator.run(made, out=tmp_path / "runs")
    assert sorted(file.name for file in (result.run_path / "config").iterdir()) == ["scenario.resolved.json"]
    assert joulefleet(["report", str(result.run_path)]) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"selectors": "fedavg"},
        {"selectors": []},
        {"selectors": ["nosuch"]},
        {"selectors": [Mine()]},
        {"seeds": []},
        {"seeds": 0},
        {"seeds": "0-1"},
        {"seeds": [-1]},
    ],
)
def test_wrong_arguments_leave_no_run(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        emulator.run_all("quick", out=tmp_path, **wrong)
    assert list(tmp_path.iterdir()) == []


def test_a_complete_run_is_not_resumed(tmp_path: Path) -> None:
    """Also where objects would have to be given again."""
    done = emulator.run(scenario(tmp_path), selector=Mine(), out=tmp_path / "runs")
    with pytest.raises(StorageError, match="is complete"):
        emulator.resume(done.run_path)
