"""``joulefleet policy``, and what the policies of the package claim."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emulator.policies import train
from emulator.selectors.neural.policy import any_policy, packaged_policies, write_policy
from harness.cli import run


def test_every_policy_says_where_it_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "show", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert set(data) == set(packaged_policies()) >= {"fedrank", "fedmarl"}
    for manifest in data.values():
        # Files made before the project had its present name stay as they are.
        assert manifest["command"].startswith(("fedjoule policy train", "joulefleet policy train"))
        assert manifest["seeds"]
        assert manifest["client_epochs"] > 0
        groups = [manifest[name] for name in ("seeds", "stop_seeds", "held_out_seeds")]
        assert len(set().union(*groups)) == sum(map(len, groups)), "no seed serves two purposes"


def test_imitation_finds_nine_tenths_of_what_boosted_trees_find() -> None:
    results = any_policy("fedrank").manifest.results
    for expert in any_policy("fedrank").manifest.experts:
        assert results[f"recall_{expert}"] >= 0.9 * results[f"trees_{expert}"]
        assert results[f"recall_{expert}"] > results[f"chance_{expert}"]


def test_show_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "show", "fedrank"]) == 0
    out = capsys.readouterr().out
    assert "recall_oort" in out
    assert "client-epochs" in out


def test_the_budget_is_printed_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "p.safetensors"
    assert run(["policy", "train", "fedmarl", "--out", str(out), "--runs", "3", "--dry-run"]) == 0
    assert "fedmarl: at most 4,920 client-epochs" in capsys.readouterr().err
    assert not out.exists()


def test_a_policy_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "p.safetensors"
    arguments = [
        "policy",
        "train",
        "fedmarl",
        "--out",
        str(out),
        "--data",
        "digits",
        "--task",
        "digits-softmax",
    ]
    assert run([*arguments, "--samples", "5", "--runs", "1", "--rounds", "2", "--json"]) == 0
    manifest = json.loads(capsys.readouterr().out)[str(out)]
    assert manifest["client_epochs"] == 2 * (30 + 13 * 4), "the week over-commits by 30 %"
    assert run([*arguments, "--json"]) == 3, "never overwritten"


SMALL = ["--data", "digits", "--task", "digits-softmax", "--samples", "5", "--runs", "1", "--rounds", "2"]


def test_what_would_fail_after_training_is_refused_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "assemble", lambda *_, **__: pytest.fail("it has begun"))
    (tmp_path / "there_from_oort.safetensors").write_text("somebody's")

    def refused(out: Path, *arguments: str) -> str:
        command = ["policy", "train", "fedrank", "--out", str(out), *SMALL, *arguments]
        assert run(command) == run([*command, "--dry-run"]) == 3
        return capsys.readouterr().err

    assert "no/folder" in refused(tmp_path / "no" / "folder" / "p.safetensors")
    assert "nothing can be written to /proc" in refused(Path("/proc/p.safetensors"))
    assert "there_from_oort.safetensors is there already" in refused(tmp_path / "there.safetensors")
    new = tmp_path / "p.safetensors"
    assert "did you mean 'oort'" in refused(new, "--experts", "harmony_like,ort")
    assert "'afl' cannot be imitated" in refused(new, "--experts", "oort,afl")
    assert "no policy called 'fedmral'" in refused(new, "--fedmarl-policy", "fedmral")
    assert [path.name for path in tmp_path.iterdir()] == ["there_from_oort.safetensors"]


def test_one_expert_does_not_look_for_files_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "p_from_oort.safetensors").write_text("somebody's")
    out = str(tmp_path / "p.safetensors")
    assert run(["policy", "train", "fedrank", "--out", out, *SMALL, "--experts", "oort", "--dry-run"]) == 0


def test_a_policy_of_given_experts_says_how_it_was_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one whose choices are all random, of which there may be nothing to report."""
    given, out = tmp_path / "marl.safetensors", tmp_path / "p.safetensors"
    write_policy(given, any_policy("fedmarl"))
    command = ["policy", "train", "fedrank", "--out", str(out), *SMALL, "--experts", "fedavg, fedmarl"]
    assert run([*command, "--fedmarl-policy", str(given), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert set(made) == {
        str(out),
        *(str(tmp_path / f"p_from_{name}.safetensors") for name in ("fedavg", "fedmarl")),
    }
    manifest = made[str(out)]
    assert f"--experts fedavg,fedmarl --loss bce --fedmarl-policy {given}" in manifest["command"]
    assert "recall_fedmarl" in manifest["results"]
    assert manifest["client_epochs"] == 2 * made[str(tmp_path / "p_from_fedavg.safetensors")]["client_epochs"]


def test_unknown_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "show", "fedrnk"]) == 3
    assert "no policy called 'fedrnk'" in capsys.readouterr().err


OWN = """
name = "own-fleet"

[fleet]
devices = 10

[fleet.traces]
at_end = "wrap"
users = 5
days = 2

[task]
name = "digits-softmax"

[protocol]
rounds = 4
k = 3
candidates = 6
local_epochs = 1
"""


def test_a_policy_is_made_on_a_scenario_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, out = tmp_path / "own.toml", tmp_path / "own.safetensors"
    scenario.write_text(OWN)
    arguments = ["policy", "train", "fedmarl", "--scenario", str(scenario), "--runs", "2"]
    assert run([*arguments, "--out", str(out), "--json"]) == 0
    manifest = json.loads(capsys.readouterr().out)[str(out)]
    assert manifest["scenario"] == "own-fleet"
    assert manifest["data"] == "digits-softmax, iid"
    assert manifest["client_epochs"] == 2 * 4 * 6
    assert f"--scenario {scenario} --runs 2" in manifest["command"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--task", "nosuch"], 3, "--task: no task called 'nosuch'"),
        (["--data", "nosuch"], 3, "--data: no data set called 'nosuch'"),
        (["--data", "digits28", "--samples", "50"], 3, "100 devices x --samples = 5000, but digits28 has"),
        (["--scenario", "own.toml", "--samples", "9"], 2, "--samples and --scenario own.toml"),
        (["--scenario", "own.toml"], 3, "task.train_samples = 99999, but digits has"),
        (["--scenario", "swept.toml"], 3, "is a sweep"),
        (["--scenario", "nowhere.toml"], 3, "nowhere.toml: No such file"),
    ],
)
def test_errors_name_what_was_written(
    arguments: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.toml").write_text(OWN.replace("[protocol]", "train_samples = 99999\n\n[protocol]"))
    Path("swept.toml").write_text(OWN + "[sweep]\nprotocol.k = [2, 3]\n")
    assert run(["policy", "train", "fedmarl", "--out", "p.safetensors", "--dry-run", *arguments]) == code
    assert said in " ".join(capsys.readouterr().err.split())
