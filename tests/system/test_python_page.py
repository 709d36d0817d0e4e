"""`docs/python.md`: every example runs, top to bottom, as typed; every public name is on the page."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import joulefleet
from tests.conftest import REPOSITORY
from tests.harness.stored_bench import stored_bench

PAGE = (REPOSITORY / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_every_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(stored_bench(tmp_path / "made"), tmp_path / "runs" / "RUN")
    names: dict[str, Any] = {}
    for block in BLOCKS:
        exec(compile(block, "docs/python.md", "exec"), names)
    assert names["second"].interval.known
    assert len(names["epochs"])
    assert names["built"].profiles
    assert set(names["table"]["method"]) == {"fedavg", "oort"}
    assert names["prediction"].cells


def test_the_page_names_everything() -> None:
    assert {name for name in joulefleet.__all__ if f"`{name}`" not in PAGE} == set()
