"""``fedjoule policy``, and what the policies of the package claim."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emulator.policies.store import any_policy, packaged_policies
from harness.cli import run


def test_every_policy_says_where_it_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "show", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert set(data) == set(packaged_policies()) >= {"fedrank", "fedmarl"}
    for manifest in data.values():
        assert manifest["command"].startswith("fedjoule policy train")
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
    assert "fedmarl: at most 4,200 client-epochs" in capsys.readouterr().err
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
    assert manifest["client_epochs"] == 2 * (30 + 10 * 4)
    assert run([*arguments, "--json"]) == 3, "never overwritten"


def test_unknown_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "show", "fedrnk"]) == 3
    assert "no policy called 'fedrnk'" in capsys.readouterr().err
