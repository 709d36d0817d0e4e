"""The run store at its edges: who may read, what is on disk and when, what is left open, what is odd."""

import errno
import json
import locale
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from joulefleet.errors import JoulefleetError, StorageError
from joulefleet.records import read_record
from joulefleet.runstore import (
    Journal,
    Run,
    RunRecord,
    RunStatus,
    RunStore,
    TableWriter,
    find_run,
    read_journal,
    salvage_run,
)
from joulefleet.runstore import journal as journals
from joulefleet.runstore.folder import check_folder, open_plain, plain_opener, stays_inside
from joulefleet.runstore.journal import cut_torn_line
from joulefleet.runstore.run import RunLock, host_facts, is_locked, read_run

SCHEMA = pa.schema([("n", pa.int64())])


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def no_mask() -> Iterator[None]:
    """Files get the mode that they are made with."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Name and size of every file that was flushed to disk, when it was."""
    seen: list[tuple[str, int]] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        fsync(fd)
        seen.append((Path(f"/proc/self/fd/{fd}").readlink().name, os.fstat(fd).st_size))

    monkeypatch.setattr(os, "fsync", noted)
    return seen


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# Folders


def put_link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def put_linked_folder(path: Path) -> None:
    path.symlink_to("/etc/default")


@pytest.mark.parametrize(
    ("put", "said"),
    [(put_link, "is a link"), (put_linked_folder, "is a link"), (os.mkfifo, "is no file")],
)
def test_whatever_is_odd_is_found_among_plain_files_and_below(
    tmp_path: Path, put: Callable[[Path], None], said: str
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in "vwxyz":
        (tmp_path / "a" / name).write_text("plain")
    check_folder(tmp_path)
    put(tmp_path / "a" / "b" / "odd")
    (tmp_path / "a" / "b" / "last").write_text("plain")
    with pytest.raises(StorageError, match=said):
        check_folder(tmp_path)


def test_what_is_no_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("plain")
    with pytest.raises(StorageError):
        check_folder(tmp_path / "file")
    check_folder(tmp_path / "gone")  # it was renamed meanwhile


def test_only_plain_files_with_one_name_are_opened(tmp_path: Path) -> None:
    plain, twice = tmp_path / "plain", tmp_path / "twice"
    plain.write_text("x")
    twice.write_text("x")
    os.link(twice, tmp_path / "other")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(plain)
    before = open_files()
    for name, said in (("twice", "another name"), ("pipe", "is no file"), ("link", "is a link")):
        for flags in (os.O_RDWR, os.O_WRONLY, os.O_RDONLY):
            with pytest.raises(StorageError, match=said):
                open_plain(tmp_path / name, flags)
    with pytest.raises(FileNotFoundError):
        open_plain(tmp_path / "none" / "file", os.O_RDONLY)
    with pytest.raises(IsADirectoryError if os.geteuid() else StorageError):
        open_plain(tmp_path, os.O_WRONLY)
    assert open_files() == before
    os.close(open_plain(plain, os.O_RDONLY))


@pytest.mark.usefixtures("no_mask")
def test_files_are_for_others_to_read_unless_said(tmp_path: Path) -> None:
    os.close(open_plain(tmp_path / "a", os.O_WRONLY | os.O_CREAT))
    for name, opener in (("b", plain_opener()), ("c", plain_opener(0o600))):
        with open(tmp_path / name, "w", opener=opener) as file:
            file.write("x")
    assert [mode(tmp_path / name) for name in "abc"] == [0o644, 0o644, 0o600]


@pytest.mark.parametrize("text", ["", ".", "/", "/a", "..", "../a", "a/../b", "a\0b", "a//b", "./a", "a/"])
def test_paths_that_lead_out_or_are_written_in_two_ways(text: str) -> None:
    with pytest.raises(ValueError, match="not a path below"):
        stays_inside(text)
    assert stays_inside("a/b.c") == "a/b.c"


# Journals


def test_what_is_flushed_when(tmp_path: Path, synced: list[tuple[str, int]]) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    journal.append({"a": 1})
    assert synced == []
    journal.sync()
    assert synced == [("j.jsonl", 8)]
    journal.append({"a": 2})
    journal.close()
    assert synced == [("j.jsonl", 8), ("j.jsonl", 16)]
    journal.close()
    assert len(synced) == 2


def test_a_closed_journal_takes_nothing_more_and_closes_nothing_else(tmp_path: Path) -> None:
    before = open_files()
    with Journal(tmp_path / "j.jsonl") as journal:
        journal.append({"a": 1})
    assert open_files() == before
    journal.close()
    os.fstat(1)  # standard output is still there
    with pytest.raises(StorageError):
        journal.append({"a": 2})
    assert list(read_journal(tmp_path / "j.jsonl")) == [{"a": 1}]
    with pytest.raises(StorageError):
        Journal(tmp_path / "none" / "j.jsonl")


def test_a_disk_that_cannot_flush_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    journal = Journal(tmp_path / "j.jsonl")
    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StorageError, match="Input/output error"):
        journal.sync()
    journal.close()  # what is left to do is done


def test_without_standard_input_the_first_descriptor_is_a_file_like_any_other(tmp_path: Path) -> None:
    kept = os.dup(0)
    try:
        os.close(0)
        journal = Journal(tmp_path / "j.jsonl")
        os.fstat(0)
        journal.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(0)
        lock = RunLock(tmp_path)
        os.fstat(0)
        lock.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(0)
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_a_line_that_is_no_object_is_named(tmp_path: Path) -> None:
    (tmp_path / "j.jsonl").write_text('[1]\n{"a": 1}\n')
    with pytest.raises(StorageError, match=r"j\.jsonl:1: not a JSON object"):
        list(read_journal(tmp_path / "j.jsonl"))


def test_a_journal_may_hold_so_much_and_a_line_of_it_so_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three lines of 10 bytes, ends included."""
    path, records = tmp_path / "j.jsonl", [{"a": 111}, {"b": 222}, {"c": 333}]
    path.write_text("".join(json.dumps(one).replace(" ", "") + "\n" for one in records))
    size = path.stat().st_size
    line = size // 3
    monkeypatch.setattr(journals, "RECORD_BYTES", size)
    monkeypatch.setattr(journals, "JOURNAL_LINE_BYTES", line)
    assert list(read_journal(path)) == records
    monkeypatch.setattr(journals, "RECORD_BYTES", size - 1)
    found = read_journal(path)
    assert [next(found), next(found)] == records[:2]
    with pytest.raises(StorageError, match=r"j\.jsonl:3: more than 0 MB of records"):
        next(found)
    path.write_bytes(path.read_bytes()[:-1])  # the last line is torn, and a limit of its length cuts it
    assert list(read_journal(path)) == records[:2]
    path.write_text('{"a":1}\n' + "x" * (line + 1) + "\n")
    monkeypatch.setattr(journals, "RECORD_BYTES", 3 << 20)
    with pytest.raises(StorageError, match=r"j\.jsonl:2: a line of 0 MB or more"):
        list(read_journal(path))
    monkeypatch.setattr(journals, "JOURNAL_LINE_BYTES", 1 << 20)
    path.write_text("x" * (1 << 20))
    with pytest.raises(StorageError, match=r"j\.jsonl:1: a line of 1 MB or more"):
        list(read_journal(path))


def test_a_torn_line_does_not_overwrite_what_a_link_leads_to(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "j.jsonl").write_bytes(b"{}\n{")
    (tmp_path / "j.jsonl.torn").symlink_to(precious)
    assert cut_torn_line(tmp_path / "j.jsonl") == 1
    assert precious.read_text() == "kept"
    assert (tmp_path / "j.jsonl.torn").read_bytes() == b"{"


# Runs


def stored(run: Run) -> RunRecord:
    return read_record(run.path / "run.json", RunRecord)


@pytest.mark.usefixtures("no_mask")
def test_a_new_run_says_all_about_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/joulefleet", "bench", "--fast"])
    config = {"plan.toml": "a = 1\n", "devices.toml": "b = 2\n"}
    with RunStore(tmp_path).create("demo", kind="bench", config=config, fingerprint="f") as run:
        record = stored(run)
    assert record.command == ("joulefleet", "bench", "--fast")
    assert (record.name, record.kind, record.fingerprint) == ("demo", "bench", "f")
    assert (record.status, record.ended_utc, record.error) == (RunStatus.RUNNING, None, "")
    assert len(record.run_id) == 8
    assert run.path.name == f"{record.created_utc:%Y%m%dT%H%M%SZ}_demo_{record.run_id}"
    assert {p.name: (p.read_text(), mode(p)) for p in (run.path / "config").iterdir()} == {
        name: (text, 0o600) for name, text in config.items()
    }
    assert not (run.path / "run.log").exists()  # nothing was logged
    assert record.host == host_facts()
    assert {"version", "system", "numpy", "scipy", "pyarrow"} < set(record.host)
    monkeypatch.setattr(sys, "argv", [])
    with RunStore(tmp_path).create("bare", kind="t") as run:
        assert run.record.command == ()
        assert list((run.path / "config").iterdir()) == []


def test_names_are_plain(tmp_path: Path) -> None:
    for name in ("Bad Name", "", "-a", "a" * 65, "a/b"):
        with pytest.raises((ValidationError, JoulefleetError)):
            RunStore(tmp_path).create(name, kind="t")
    now = datetime.now(UTC)
    record = RunRecord(run_id="1", name="a", kind="t", status=RunStatus.RUNNING, created_utc=now)
    assert record.host == {}


def test_a_run_may_be_left_open_and_a_failure_counts_more(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with store.create("a", kind="t", fingerprint="f") as run:
        run.leave_open("half of it")
    assert (stored(run).status, stored(run).error) == (RunStatus.INTERRUPTED, "half of it")
    with store.resume(run.path, fingerprint="f") as run:
        again = stored(run)
        assert (again.status, again.error, again.ended_utc) == (RunStatus.RUNNING, "", None)
    assert stored(run).status is RunStatus.COMPLETE
    with pytest.raises(ValueError, match="boom"), store.create("b", kind="t") as run:
        run.leave_open("half of it")
        raise ValueError("boom")
    assert (stored(run).status, stored(run).error) == (RunStatus.FAILED, "ValueError: boom")
    with pytest.raises(KeyboardInterrupt), store.create("c", kind="t") as run:
        raise KeyboardInterrupt
    assert (stored(run).status, stored(run).error) == (RunStatus.INTERRUPTED, "interrupted")


def test_facts_are_on_disk_at_once(tmp_path: Path) -> None:
    with RunStore(tmp_path).create("a", kind="t") as run:
        run.note(gpu="none")
        run.note(rack="7")
        assert {"gpu": "none", "rack": "7", "python": run.record.host["python"]}.items() <= stored(
            run
        ).host.items()


def test_the_log_of_a_run_is_its_own(tmp_path: Path) -> None:
    handlers, before = list(logging.getLogger().handlers), open_files()
    old = locale.setlocale(locale.LC_CTYPE)
    try:
        locale.setlocale(locale.LC_CTYPE, "C")  # a terminal's language says nothing about a file
        with RunStore(tmp_path).create("a", kind="t") as run:
            logging.getLogger("some.part").warning("10 \u03a9\x1b[2J")
    finally:
        locale.setlocale(locale.LC_CTYPE, old)
    logging.getLogger("some.part").warning("after")
    text = (run.path / "run.log").read_text(encoding="utf-8")
    assert text.count("\n") == 1
    assert " WARNING some.part: 10 \u03a9" in text
    assert "\x1b" not in text
    assert logging.getLogger().handlers == handlers
    assert open_files() == before


def test_the_log_leads_nowhere_else(tmp_path: Path) -> None:
    store, elsewhere = RunStore(tmp_path / "runs"), tmp_path / "elsewhere"
    with store.create("a", kind="t", fingerprint="f") as run:
        run.leave_open("later")
    (run.path / "run.log").symlink_to(elsewhere)
    with pytest.raises(StorageError), Run(run.path, run.record, RunLock(run.path)):
        logging.getLogger("some.part").warning("here")
    assert not elsewhere.exists()
    (run.path / "run.log").unlink()
    elsewhere.write_text("kept")
    os.link(elsewhere, run.path / "run.log")
    with pytest.raises(StorageError, match="another name"):
        store.resume(run.path, fingerprint="f")
    assert elsewhere.read_text() == "kept"


def test_folders_of_a_run(tmp_path: Path) -> None:
    with RunStore(tmp_path / "runs").create("a", kind="t") as run:
        for _ in range(2):
            assert run.subfolder("x/y/z") == run.path.resolve() / "x" / "y" / "z"
        assert (run.path / "x" / "y" / "z").is_dir()
        (run.path / "link").symlink_to(tmp_path)
        for name in (str(tmp_path / "elsewhere"), "../elsewhere", "link/elsewhere"):
            with pytest.raises(StorageError, match="leads out"):
                run.subfolder(name)
        (run.path / "link").unlink()
        (run.path / "file").write_text("x")
        with pytest.raises(StorageError):
            run.subfolder("file/below")
        with run.journal("notes", folder="x") as journal:
            journal.append({"a": 1})
        run.table("t", SCHEMA, folder="x").abandon()
        with pytest.raises(StorageError, match="not overwritten"):
            run.table("t", SCHEMA, folder="x")
    assert sorted(p.name for p in (run.path / "x").iterdir()) == ["notes.jsonl", "t.arrows", "y"]
    assert not (tmp_path / "elsewhere").exists()


def test_a_status_that_cannot_be_stored_matters_if_the_run_was_complete(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def break_record(run: Run) -> None:
        (run.path / "run.json").unlink()
        (run.path / "run.json").mkdir()

    store = RunStore(tmp_path)
    with pytest.raises(StorageError), store.create("a", kind="t") as run:
        break_record(run)
    with pytest.raises(ValueError, match="boom"), store.create("b", kind="t") as run:
        break_record(run)
        raise ValueError("boom")
    assert "could not store the status" in caplog.text
    assert not is_locked(run.path)


def test_locks_are_held_by_one_and_leave_nothing_open(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    before = open_files()
    lock = RunLock(tmp_path)
    assert is_locked(tmp_path)
    with pytest.raises(StorageError, match="another process"):
        RunLock(tmp_path)
    assert open_files() == before + 1
    lock.close()
    lock.close()
    os.fstat(1)
    assert not is_locked(tmp_path)
    assert open_files() == before
    with pytest.raises(StorageError):
        RunLock(tmp_path / "none")


def test_a_run_with_something_odd_in_it_is_not_read(tmp_path: Path) -> None:
    with RunStore(tmp_path).create("a", kind="t") as run:
        pass
    assert read_run(run.path).name == "a"
    os.mkfifo(run.path / "pipe")
    with pytest.raises(StorageError, match="is no file"):
        read_run(run.path)


# The store


def test_what_is_listed(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    assert store.list() == []
    with store.create("a", kind="bench") as run, store.create("b", kind="emulate") as other:
        assert [s.state for s in store.list()] == ["running", "running"]
    (store.root / "file").write_text("x")
    (store.root / ".hidden").mkdir()
    os.mkfifo(_bad(store.root) / "run.json")
    first, second, odd = store.list()
    assert first.as_dict() == {
        "path": str(run.path),
        "state": "complete",
        "name": "a",
        "kind": "bench",
        "created_utc": run.record.created_utc.isoformat(),
        "tags": [],
        "problem": "",
    }
    assert (second.path, second.alive) == (other.path, False)
    assert odd.as_dict() | {"path": ""} == {
        "path": "",
        "state": "unreadable",
        "name": None,
        "kind": None,
        "created_utc": None,
        "tags": [],
        "problem": "run.json is no plain file",
    }
    assert not odd.alive


def test_notes_that_cannot_be_read_do_not_hide_a_run(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with store.create("a", kind="bench") as run:
        os.mkfifo(run.path / "notes.jsonl")
    (found,) = store.list()
    assert (found.state, found.tags) == ("complete", ())
    assert found.problem.endswith("notes.jsonl: no plain file")


def _bad(root: Path) -> Path:
    folder = root / "90000101T000000Z_bad_00000000"
    folder.mkdir()
    return folder


def test_a_run_is_found_if_it_is_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RunStore(tmp_path)
    runs = []
    for name in ("alpha", "beta", "beta"):
        with store.create(name, kind="t") as run:
            runs.append(run)
    assert find_run(tmp_path, "alpha") == runs[0].path
    assert find_run(tmp_path, runs[1].record.run_id) == runs[1].path
    assert find_run(tmp_path, runs[2].path.name) == runs[2].path
    with pytest.raises(StorageError, match="2 runs match 'beta'"):
        find_run(tmp_path, "beta")
    with pytest.raises(StorageError, match="no run matches 'bet'"):
        find_run(tmp_path, "bet")
    monkeypatch.chdir(tmp_path)
    assert find_run(tmp_path / "none", runs[0].path.name) == Path(runs[0].path.name)


# Salvage


def test_salvage_tells_everything_that_it_did(tmp_path: Path) -> None:
    run = RunStore(tmp_path).create("a", kind="t")
    for name in ("one", "two"):
        table = TableWriter(run.subfolder(f"f/{name}"), name, SCHEMA)
        table.append({"n": [1, 2]})
        table.abandon()
        journal = run.journal(name)
        journal.append({"a": 1})
        journal.close()
        with (run.path / f"{name}.jsonl").open("ab") as file:
            file.write(b'{"a')
    run.journal("whole").close()
    kept = TableWriter(run.path, "kept", SCHEMA, keep_stream=True)
    kept.append({"n": [1, 2, 3]})
    kept.abandon()
    with (run.path / "kept.arrows").open("ab") as file:
        file.write(b"torn")
    (run.path / ".dir.tmp").mkdir()
    (run.path / ".dir.tmp" / ".inner.tmp").write_text("x")
    (run.path / ".file.tmp").write_text("x")
    run._lock.close()
    report = salvage_run(run.path)
    assert json.loads(json.dumps(report.as_dict())) == {
        "path": str(run.path),
        "status": "salvaged",
        "tables": {"f/one/one.parquet": 2, "f/two/two.parquet": 2, "kept.arrows": 3},
        "torn_journals": {"one.jsonl": 3, "two.jsonl": 3},
        "leftovers_removed": [".dir.tmp", ".dir.tmp/.inner.tmp", ".file.tmp"],
        "problems": {},
    }
    assert b"torn" not in (run.path / "kept.arrows").read_bytes()
    assert not list(run.path.glob(".*.tmp"))
    assert stored(run).status is RunStatus.SALVAGED
    assert stored(run).ended_utc is not None


def test_salvage_of_a_run_that_ended_by_itself_keeps_its_status(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="boom"), RunStore(tmp_path).create("a", kind="t") as run:
        raise ValueError("boom")
    before = (run.path / "run.json").read_bytes()
    assert salvage_run(run.path).status is RunStatus.FAILED
    assert (run.path / "run.json").read_bytes() == before
    report: dict[str, Any] = salvage_run(run.path).as_dict()
    assert (report["tables"], report["torn_journals"], report["leftovers_removed"]) == ({}, {}, [])
