"""``joulefleet emulate`` as it is typed."""

import json
import socket
import sys
from pathlib import Path

import pytest

from harness.cli import run

SCENARIO = """
name = "small"

[fleet]
devices = 12

[protocol]
rounds = 2
k = 3

[trainer]
kind = "surrogate"
"""


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    file = tmp_path / "small.toml"
    file.write_text(SCENARIO)
    return str(file)


def test_selectors_and_seeds_into_one_run(
    scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "emulations"
    arguments = ["emulate", scenario, "--selector", "fedavg,oort", "--seeds", "0,2-3", "--root", str(root)]
    assert run([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [(e["selector"], e["seed"]) for e in data["emulations"]] == [
        (name, seed) for name in ("fedavg", "oort") for seed in (0, 2, 3)
    ]
    for emulation in data["emulations"]:
        assert emulation["origin"] == "emulated"
        assert emulation["cost_origin"] == "literature"
        assert emulation["training"] == "surrogate"
        assert (Path(data["path"]) / emulation["folder"] / "rounds.parquet").is_file()


def test_the_summary_says_what_its_numbers_rest_on(
    scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["emulate", scenario, "--root", str(tmp_path / "e")]) == 0
    captured = capsys.readouterr()
    assert "fedavg" in captured.out
    assert "marginal energy, costs literature" in captured.out
    assert "nothing was learned" in captured.out
    assert "round 2" in captured.err


def test_a_dry_run_writes_nothing(scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "e"
    assert run(["emulate", scenario, "--dry-run", "--root", str(root)]) == 0
    out = capsys.readouterr().out
    assert "12 devices" in out
    assert "12 eligible at the start" in out
    assert "T = " in out
    assert not root.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--ray-address", "10.0.0.1:6379"], 2, "--ray-address goes with `--engine ray`"),
        (["--seeds", "3-1"], 2, "no list of seeds"),
        (["--seeds", "x"], 2, "no list of seeds"),
        (["--selector", "fedavg,orrt"], 3, "no selector called 'orrt'"),
        (["--resume", "."], 2, "give a SCENARIO, or --resume"),
    ],
)
def test_wrong_words_are_refused_before_anything_runs(
    arguments: list[str],
    code: int,
    message: str,
    scenario: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["emulate", scenario, *arguments, "--root", str(tmp_path / "e")]) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "e").exists()


def test_nothing_to_run_and_nothing_to_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["emulate"]) == 2
    assert run(["emulate", "--resume", str(tmp_path)]) == 1
    assert "not a run of `joulefleet emulate`" in capsys.readouterr().err
    assert run(["emulate", "--resume", str(tmp_path), "--seeds", "1"]) == 2


def test_presets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "scenarios"]) == 0
    out = capsys.readouterr().out
    assert "mnist-lenet5-dir-client" in out
    assert "quick" in out


def test_without_a_cluster_nothing_is_begun(
    scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["emulate", scenario, "--engine", "ray", "--root", str(tmp_path / "e")]
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ray", None)
        assert run(asked) == 2
        assert "-e '.[scale]'" in capsys.readouterr().err
    assert run([*asked, "--ray-address", "nonsense"]) == 1
    assert "no Ray cluster at nonsense" in capsys.readouterr().err
    assert not (tmp_path / "e").exists()


def everything(*folders: Path) -> set[str]:
    return {str(path) for folder in folders for path in folder.rglob("*")}


@pytest.mark.parametrize("named", [False, True], ids=["cache", "JOULEFLEET_DATA"])
def test_a_dry_run_touches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], named: bool
) -> None:
    """No folder, no download, where data that would be fetched are not at hand."""
    here, home, cache = (tmp_path / name for name in ("here", "home", "cache"))
    here.mkdir()
    home.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    if named:
        monkeypatch.setenv("JOULEFLEET_DATA", str(tmp_path / "data"))
    else:
        monkeypatch.delenv("JOULEFLEET_DATA", raising=False)

    def no_network(*_: object, **__: object) -> None:
        raise AssertionError("a dry run asked for the network")

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    monkeypatch.setattr(socket.socket, "connect", no_network)
    before = everything(tmp_path)
    assert run(["emulate", "mnist-lenet5-dir-client", "--selector", "fedavg,fedrank", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "MNIST is not in" in out
    assert "not known before the data are at hand" in out
    assert everything(tmp_path) == before


def test_ctrl_c_says_where_the_run_is_and_how_to_go_on(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from emulator.runs import emulation

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(emulation, "save_checkpoint", stop)
    assert run(["emulate", scenario, "--root", str(tmp_path / "e")]) == 130
    (path,) = (tmp_path / "e").iterdir()
    told = capsys.readouterr().err
    assert f"into {path}; should it stop" in told
    assert told.rstrip().endswith(
        f"joulefleet: interrupted: it is in {path}; `joulefleet emulate --resume {path}` goes on"
    )
    monkeypatch.undo()
    assert run(["emulate", "--resume", str(path)]) == 0
