"""The tutorials do what they say when they are followed to the letter."""

from pathlib import Path

import pytest

from tests.system.tutorials import Reader

pytestmark = pytest.mark.timeout(600)


def test_measuring_a_board(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.follow("tutorial-board.md")
    (run,) = (tmp_path / "runs").iterdir()
    assert len(list((run / "profiles").glob("*.json"))) == 1
    assert (run / "report.html").is_file()
    assert "emulated" in reader.said
    assert "measured [" not in reader.said


def test_whether_probing_pays(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.follow("tutorial-probing.md")
    assert "honest" in reader.said
    compared = reader.said[reader.said.index("energy") :]
    assert "fedrank_plus" in compared
    assert "no_probe" in compared
    assert len(list((tmp_path / "emulations").iterdir())) == 2
