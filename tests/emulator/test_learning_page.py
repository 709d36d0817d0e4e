"""The tutorial and the reference of own code: files are written, commands and Python run, as typed."""

import os
import re
import shlex
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.own_code.find import ALL_TASKS
from harness.cli import run as joulefleet
from tests.conftest import REPOSITORY
from tests.emulator.own_files import nothing_given

__all__ = ["nothing_given"]  # a fixture

TUTORIAL, REFERENCE = (
    (REPOSITORY / "docs" / name).read_text(encoding="utf-8") for name in ("learning.md", "own-code.md")
)
TUTORIAL_BYTES, TUTORIAL_CPU_S, LONGEST = 5000, 120, 30
BROKEN = """import numpy as np
from torch import nn


def data():
    return np.zeros((50, 2)), np.zeros(50)


def model():
    return nn.Linear(2, 3)
"""


@pytest.mark.timeout(600)
def test_the_tutorial_leads_to_a_page_of_results_in_five_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text(BROKEN)
    assert len(TUTORIAL.encode()) < TUTORIAL_BYTES, "nobody reads it in five minutes"
    begun = sum(os.times()[:4])
    names = follow(TUTORIAL, capsys)
    assert sum(os.times()[:4]) - begun < TUTORIAL_CPU_S
    assert np.isfinite(names["run"].rounds["test_mae"]).all()
    page = next(Path("emulations").glob("*/report.html")).read_text(encoding="utf-8")
    assert "Test mae against" in page
    assert "best mae" in page
    assert "accuracy %" not in page
    assert page.count("oort") > 2


def test_every_block_of_the_reference_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    follow(REFERENCE, capsys)
    assert len(list(Path("emulations").iterdir())) == 4


def blocks(page: str) -> list[tuple[str, str, str]]:
    """Kind, note and text of each."""
    return re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def follow(page: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Do what a page says, from top to bottom; gives the names of its Python."""
    names: dict[str, Any] = {}
    for kind, note, text in blocks(page):
        if note.startswith("file="):
            Path(note.removeprefix("file=")).write_text(text)
        elif kind == "sh":
            for line in text.splitlines():
                run_line(line, fails=note == "fails")
        elif kind == "python":
            exec(compile(text, "a page", "exec"), names)
        elif kind == "text":
            assert text.strip() in capsys.readouterr().err
        else:
            assert note == "entry", f"a block that nobody runs: {kind} {note}"
            ((group, _),) = tomllib.loads(text)["project"]["entry-points"].items()
            assert group == ALL_TASKS.group
    return names


def run_line(line: str, *, fails: bool) -> None:
    """A command of the page; RUN is the newest one."""
    words = shlex.split(line)
    assert words[0] == "joulefleet"
    newest = max(Path("emulations").glob("*"), default=Path(), key=lambda path: path.stat().st_mtime)
    given = [word.replace("emulations/RUN", str(newest)) for word in words[1:]]
    assert joulefleet(given) == (3 if fails else 0), line


def test_a_task_takes_fewer_lines_than_promised() -> None:
    for _, note, text in blocks(TUTORIAL) + blocks(REFERENCE):
        if note.endswith(".py") and "def data" in text:
            assert len([line for line in text.splitlines() if line.strip()]) < LONGEST, note


def test_signatures_on_the_page_are_those_of_the_code() -> None:
    import inspect

    from emulator.round.reward import Reward
    from emulator.round.rules import Aggregate
    from emulator.round.selector import Selector

    for kind in (Reward.__call__, Aggregate.__call__):
        assert f"`({', '.join(list(inspect.signature(kind).parameters)[1:])})`" in REFERENCE
    assert f"`select({', '.join(inspect.signature(Selector.select).parameters)})`" in REFERENCE


def test_the_example_is_a_task_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(REPOSITORY / "examples" / "own_task.py", "spirals.py")
    assert joulefleet(["emulate", "quick", "--code", "spirals.py", "--selector", "fedavg,oort"]) == 0
    from emulator.compare.load import compare_emulations

    cells = compare_emulations("emulations").comparison.cells
    assert set(cells) == {"fedavg", "oort"}
    assert min(cells[method]["best_accuracy"].value.mean for method in cells) > 0.9
