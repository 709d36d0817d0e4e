"""A test that needs real data and does not find it: a failure in CI, a skip that says why elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
NEEDY = "tests/traces/test_readers_real.py::test_pensieve"


@pytest.mark.parametrize(
    ("in_ci", "folder", "ends", "says"),
    [
        ("true", None, 1, "JOULEFLEET_DATA is not the folder of real data sets"),
        ("true", "nowhere", 1, "JOULEFLEET_DATA is not the folder of real data sets"),
        ("true", "empty", 1, "is not among the real data sets (with CI=true a missing part is a failure)"),
        ("", "empty", 0, "SKIPPED"),
    ],
)
def test_missing_data_fails_in_ci(
    tmp_path: Path, in_ci: str, folder: str | None, ends: int, says: str
) -> None:
    (tmp_path / "empty").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "JOULEFLEET_DATA"}
    environment |= {"CI": in_ci} | ({"JOULEFLEET_DATA": str(tmp_path / folder)} if folder else {})
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", NEEDY]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == ends, done.stdout
    assert says in done.stdout
