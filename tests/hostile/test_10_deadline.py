"""Class 10: a scenario whose rounds nobody can finish is not shown as a fast and cheap method."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli import run as joulefleet

IMPOSSIBLE = """
name = "hurry"
[task]
name = "digits-mlp"
[fleet]
devices = 20
[protocol]
rounds = {rounds}
k = 4
local_epochs = 2
deadline_s = {deadline_s}
[trainer]
kind = "surrogate"
"""


def emulated(
    folder: Path, capsys: pytest.CaptureFixture[str], deadline_s: float, *more: str
) -> dict[str, Any]:
    file = folder / "hurry.toml"
    file.write_text(IMPOSSIBLE.format(rounds=5, deadline_s=deadline_s))
    assert joulefleet(["emulate", str(file), "--root", str(folder / "runs"), *more]) == 0
    text = capsys.readouterr().out
    if "--json" in more:
        found: dict[str, Any] = json.loads(text)
        return found
    return {"text": text, "path": str(next((folder / "runs").iterdir()))}


def test_the_summary_says_that_nobody_finished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = emulated(tmp_path, capsys, 1e-3, "--seeds", "0-2")
    header, line = found["text"].splitlines()[:2]
    assert "finished" in header
    assert "0 of 60" in line
    assert "only 0 of 60 participations finished (0%)" in found["text"]
    html = Path(found["path"], "report.html")
    assert joulefleet(["report", found["path"]]) == 0
    assert "only 0 of 60 participations finished" in html.read_text()
    capsys.readouterr()
    assert joulefleet(["compare", found["path"]]) == 0
    text = capsys.readouterr().out
    assert "warning: fedavg: only 0 of 60 participations finished" in text


def test_the_same_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = emulated(tmp_path, capsys, 1e-3, "--json")
    (one,) = found["emulations"]
    assert (one["finished"], one["asked"]) == (0, 20)
    assert "0 of 20" in found["warnings"][0]


def test_a_method_that_finishes_nothing_wins_no_ranking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two selectors, of which one runs in a scenario that lets nobody finish."""
    for name, deadline_s in (("fedavg", 1e6), ("oort", 1e-3)):
        folder = tmp_path / name
        folder.mkdir()
        emulated(folder, capsys, deadline_s, "--seeds", "0-2", "--selector", name)
    both = [str(tmp_path / name / "runs") for name in ("fedavg", "oort")]
    assert joulefleet(["compare", *both, "--mixed", "--target", "0.2", "--format", "csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    energy = {row["method"]: row for row in rows if row["metric"] == "round_energy_j"}
    assert float(energy["fedavg"]["finished"]) == 1.0
    assert float(energy["oort"]["finished"]) == 0.0
    assert energy["oort"]["rank"] == "", "what did nothing is not the cheapest"
    assert float(energy["fedavg"]["rank"]) == 1.0
