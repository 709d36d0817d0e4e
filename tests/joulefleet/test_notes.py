"""Notes about a run: what is kept, what is refused, and the words that begin with #."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from joulefleet.errors import ConfigError, StorageError
from joulefleet.runstore.notes import LONGEST, MOST_BYTES, NOTES_FILE, RunNote, add_note, read_notes, tags


def noted(*texts: str) -> list[RunNote]:
    return [RunNote(written_utc=datetime(2026, 3, 2, tzinfo=UTC), text=text) for text in texts]


def test_notes_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert read_notes(tmp_path) == []
    (tmp_path / "jobs" / "phone").mkdir(parents=True)
    before = datetime.now(UTC)
    first = add_note(tmp_path, "  fan was off\n")
    second = add_note(tmp_path, "x" * LONGEST, "phone")
    assert (first.text, first.job) == ("fan was off", "")
    assert before <= first.written_utc <= second.written_utc <= datetime.now(UTC)
    assert first.written_utc.utcoffset() == timedelta(0)
    found = read_notes(tmp_path)
    assert [(note.text, note.job) for note in found] == [("fan was off", ""), ("x" * LONGEST, "phone")]
    assert [note.written_utc for note in found] == [first.written_utc, second.written_utc]
    lines = (tmp_path / NOTES_FILE).read_text().splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["fan was off", "x" * LONGEST]


@pytest.mark.parametrize("text", ["", " \n", "x" * 2001])
def test_what_is_no_note_is_not_kept(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        add_note(tmp_path, text)
    assert not (tmp_path / NOTES_FILE).exists()


def test_a_job_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        add_note(tmp_path, "x", "phone")
    assert caught.value.hint == "it has no jobs"
    for name in "abcde":
        (tmp_path / "jobs" / name).mkdir(parents=True)
    (tmp_path / "jobs" / "0.txt").write_text("no job")
    for job in ("phone", "0.txt", "../jobs/a", "a/../b"):
        with pytest.raises(ConfigError) as caught:
            add_note(tmp_path, "x", job)
        assert caught.value.hint == "there are a, b, c, d, e"
    (tmp_path / "jobs" / "f").mkdir()
    with pytest.raises(ConfigError) as caught:
        add_note(tmp_path, "x", "phone")
    assert caught.value.hint == "there are a, b, c, d, e, ..."
    assert read_notes(tmp_path) == []


def test_half_of_what_is_read_may_be_written(tmp_path: Path) -> None:
    """A file of 512 KiB takes one more note, one of a byte more none; over 1 MiB none is read."""
    note = add_note(tmp_path, "x")
    file = tmp_path / NOTES_FILE
    line = file.read_bytes()
    assert MOST_BYTES == 1024 * 1024

    def fill(size: int) -> None:
        count = size // len(line)
        last = line.rstrip(b"\n") + b" " * (size - count * len(line)) + b"\n"
        file.write_bytes(line * (count - 1) + last)
        assert file.stat().st_size == size

    fill(524_288)
    add_note(tmp_path, "y")
    assert read_notes(tmp_path)[-1].text == "y"
    fill(524_289)
    with pytest.raises(ConfigError, match="as many notes as it can have"):
        add_note(tmp_path, "z")
    fill(1_048_576)
    assert {one.text for one in read_notes(tmp_path)} == {note.text}
    fill(1_048_577)
    with pytest.raises(StorageError, match="1,048,577 bytes of notes, 1,048,576 are read"):
        read_notes(tmp_path)


def test_notes_that_lie_somewhere_else(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    add_note(tmp_path, "another run's")
    (run / NOTES_FILE).symlink_to(tmp_path / NOTES_FILE)
    for act in (lambda: read_notes(run), lambda: add_note(run, "x")):
        with pytest.raises(StorageError, match="no plain file"):
            act()
    assert len(read_notes(tmp_path)) == 1
    (run / NOTES_FILE).unlink()
    os.mkfifo(run / NOTES_FILE)
    with pytest.raises(StorageError, match="no plain file"):
        read_notes(run)


def test_words_that_begin_with_a_hash() -> None:
    """In the order in which they were last given; what only looks like one is none."""
    assert tags(noted("#hot and #öl_2-b, not a#b, ##c, #1st or #-", "(#d) #e.")) == ("hot", "öl_2-b", "e")
    assert tags(noted("#a #b #c", "#-b #-never", "#a")) == ("c", "a")
    assert tags(noted("#b", "#-b", "#b")) == ("b",)
    assert tags(noted("#" + "x" * 40, "#" + "y" * 41)) == ("x" * 40,)
    assert tags([]) == ()
