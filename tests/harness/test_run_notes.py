"""Notes of people beside a run, and on its page."""

import json
from pathlib import Path

import pytest

from harness.cli import run
from harness.outputs import page_of, write_outputs
from joulefleet.errors import ConfigError
from joulefleet.runstore.notes import LONGEST, add_note, read_notes
from tests.harness.stored_bench import stored_bench

HOSTILE = "<script>alert(1)</script> & \u202eevil"


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    return stored_bench(tmp_path)


def test_notes_are_kept_in_order_and_shown_escaped(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = next((bench / "jobs").iterdir()).name
    assert run(["runs", "note", str(bench), "fan was off"]) == 0
    assert run(["runs", "note", str(bench), HOSTILE, "--job", job]) == 0
    assert [(one.text, one.job) for one in read_notes(bench)] == [("fan was off", ""), (HOSTILE, job)]
    capsys.readouterr()
    assert run(["runs", "note", str(bench), "--json"]) == 0
    assert [one["text"] for one in json.loads(capsys.readouterr().out)] == ["fan was off", HOSTILE]
    html = write_outputs(bench)[0].read_text(encoding="utf-8")
    assert "fan was off" in html
    assert "<script>alert(1)" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert "\u202e" not in html
    assert html.index("fan was off") < html.index("<section")  # before all numbers


@pytest.mark.parametrize(("text", "job"), [("", ""), ("  ", ""), ("x" * (LONGEST + 1), ""), ("x", "nowhere")])
def test_a_note_that_is_none_is_refused(bench: Path, text: str, job: str) -> None:
    with pytest.raises(ConfigError):
        add_note(bench, text, job)
    assert read_notes(bench) == []


def test_a_folder_that_is_no_run_gets_no_note(tmp_path: Path) -> None:
    assert run(["runs", "note", str(tmp_path), "x"]) != 0
    assert not list(tmp_path.iterdir())


def test_notes_change_nothing_else(bench: Path) -> None:
    before = page_of(bench)
    add_note(bench, "x")
    after = page_of(bench)
    assert [s.title for s in before.sections] == [s.title for s in after.sections]
    assert (before.notes, len(after.notes)) == ([], 1)
