"""The page on bfloat16 has the table that its data give, and its script trains as it says."""

import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

RESULTS = REPOSITORY / "docs" / "results"
SCRIPT: dict[str, Any] = runpy.run_path(str(RESULTS / "bfloat16.py"))


def test_every_number_of_the_table_is_recomputed_from_the_data() -> None:
    assert SCRIPT["table"]() in (RESULTS / "bfloat16.md").read_text(encoding="utf-8")


def test_models_are_compared_in_pairs_of_a_seed(tmp_path: Path) -> None:
    """By hand: differences of -1, 0 and +4 points have mean 1, sd 2.646, and t = 4.303."""
    path = tmp_path / "bfloat16.csv"
    lines = [",".join(SCRIPT["COLUMNS"])]
    for seed, (exact, half) in enumerate([(0.9, 0.89), (0.5, 0.5), (0.7, 0.74)]):
        for precision, accuracy, cpu_s in (("float32", exact, 3), ("bfloat16", half, 2)):
            lines += [
                f"one,{seed},{precision},1,0.1,2,1",
                f"one,{seed},{precision},2,{accuracy},1.5,{cpu_s}",
            ]
    lines.append("one,3,float32,1,0.1,2,1")  # its twin is not there yet
    path.write_text("\n".join(lines) + "\n")
    (row,) = SCRIPT["table"](path).splitlines()[2:]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:4] == ["one", "3", "70.0", "+1.0 [-5.6, +7.6]"]
    assert cells[4:] == ["+0.5 [-2.8, +3.8]", "+0.000 [+0.000, +0.000]", "1.50x"]


def test_runs_that_are_there_are_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the embedded digits, with a model of no time."""
    small = {"task": "digits-mlp", "data": "digits", "learning_rate": 0.1, "tested": 100}
    plan = replace(SCRIPT["PLANS"]["ResNet-18"], rounds=2, seeds=1, **small)
    monkeypatch.setitem(SCRIPT["PLANS"], "ResNet-18", plan)
    path = tmp_path / "data" / "bfloat16.csv"
    SCRIPT["measure"](path, ["ResNet-18"])
    stored = path.read_text()
    assert len(stored.splitlines()) == 5
    assert len(capsys.readouterr().out.splitlines()) == 2
    SCRIPT["measure"](path, ["ResNet-18"])
    assert path.read_text() == stored
    exact, half = (line.split(",") for line in stored.splitlines()[2::2])
    assert (exact[2], half[2]) == ("float32", "bfloat16")
    assert exact[5] != half[5], "the same losses: one precision was trained twice"
