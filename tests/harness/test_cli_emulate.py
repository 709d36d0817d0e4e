"""``joulefleet emulate`` as it is typed."""

import json
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
