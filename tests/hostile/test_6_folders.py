"""Class 6: a run folder from another lab: nothing leads out of it, nothing blocks."""

import contextlib
import json
import logging
import os
import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from emulator.runs.opening import read_index
from emulator.runs.reading import how_to_go_on
from harness import cli
from harness.evidence.capture import salvage
from joulefleet.errors import ConfigError, JoulefleetError, StorageError
from joulefleet.runstore import Journal, RunStore, TableWriter, salvage_run
from joulefleet.runstore.store import summarise
from tests.harness.stored_bench import stored_bench
from traces.replay.flat_store import open_flat

PRECIOUS = b"do not touch: no newline at the end"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "elsewhere" / "precious"
    path.parent.mkdir()
    path.write_bytes(PRECIOUS)
    return path


def killed_run(root: Path) -> Path:
    run = RunStore(root).create("killed", kind="bench")
    with run.journal("journal") as journal:
        journal.append({"a": 1})
    table = run.table("t", pa.schema([("x", pa.int64())]))
    table.append({"x": [1, 2, 3]})
    table.abandon()
    run._lock.close()
    return run.path


def symlink(path: Path, target: Path) -> None:
    path.symlink_to(target)


def hard_link(path: Path, target: Path) -> None:
    os.link(target, path)


PLACES = ["journal.jsonl", "other.jsonl", "x.arrows", ".t.arrows.tmp", ".t.parquet.tmp", "journal.jsonl.torn",
          "run.log", ".lock", "jobs/a/markers.jsonl"]  # fmt: skip


@pytest.mark.parametrize("link", [symlink, hard_link])
@pytest.mark.parametrize("place", PLACES)
def test_salvage_writes_nothing_outside(tmp_path: Path, precious: Path, place: str, link) -> None:  # type: ignore[no-untyped-def]
    run = killed_run(tmp_path / "runs")
    victim = run / place
    victim.parent.mkdir(parents=True, exist_ok=True)
    if victim.exists():
        victim.unlink()
    link(victim, precious)
    (run / "torn.jsonl").write_bytes(b'{"a":1}\n{"torn')
    with contextlib.suppress(JoulefleetError):
        salvage(run)
    with contextlib.suppress(JoulefleetError), RunStore(run.parent).resume(run, fingerprint="") as again:
        logging.getLogger("x").warning("a line")
        again.journal("other").append({"a": 1})
    assert precious.read_bytes() == PRECIOUS


@pytest.mark.parametrize("folder", ["jobs", "checkpoint", "profiles", "config", "jobs/0001"])
@pytest.mark.parametrize("command", [["runs", "salvage"], ["report"], ["profile", "build"], ["runs", "show"]])
def test_a_linked_folder_is_not_entered(tmp_path: Path, folder: str, command: list[str]) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.jsonl").write_bytes(PRECIOUS)
    run = killed_run(tmp_path / "runs")
    if (run / folder).exists():
        shutil.rmtree(run / folder)
    (run / folder).parent.mkdir(exist_ok=True)
    (run / folder).symlink_to(outside)
    assert cli.run([*command, str(run)]) == 1
    assert [path.name for path in outside.iterdir()] == ["a.jsonl"]
    assert (outside / "a.jsonl").read_bytes() == PRECIOUS


def test_a_secret_behind_a_link_does_not_reach_the_page(tmp_path: Path) -> None:
    secret = tmp_path / "id_ed25519"
    secret.write_text("PRIVATE KEY")
    run = stored_bench(tmp_path / "runs")
    (run / "config" / "plan.toml").unlink()
    (run / "config" / "plan.toml").symlink_to(secret)
    assert cli.run(["report", str(run)]) == 1
    assert not (run / "report.html").exists()


@pytest.mark.parametrize("place", ["run.json", ".lock", "journal.jsonl", "jobs/a/capture.json", "index.json"])
@pytest.mark.parametrize(
    "command", [["runs", "list", "--root"], ["runs", "show"], ["runs", "salvage"], ["compare"]]
)
def test_a_pipe_in_place_of_a_file_blocks_nobody(
    tmp_path: Path, place: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = killed_run(tmp_path / "runs")
    victim = run / place
    victim.parent.mkdir(parents=True, exist_ok=True)
    victim.unlink(missing_ok=True)
    os.mkfifo(victim)
    target = run.parent if command[-1] == "--root" else run
    codes: list[int] = []
    worker = threading.Thread(target=lambda: codes.append(cli.run([*command, str(target)])), daemon=True)
    worker.start()
    worker.join(20)
    assert codes, "it waits for the pipe"
    assert codes[0] in (0, 1, 3, 6)
    assert "unexpected" not in capsys.readouterr().err


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    run = killed_run(tmp_path / "disk")
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    link = tmp_path / "mine"
    link.symlink_to(run)
    assert salvage_run(link).tables == {"t.parquet": 3}
    assert summarise(tmp_path / "runs" / run.name).state == "salvaged"


@pytest.mark.parametrize("folder", ["../../out", "/tmp/out", "a/../../out", "", ".", "a//b", "a\0b"])
def test_paths_in_records_stay_inside(tmp_path: Path, folder: str) -> None:
    scenario = json.loads((Path(__file__).parent / "data" / "index.json").read_text())
    scenario["planned"][0]["folder"] = folder
    (tmp_path / "index.json").write_text(json.dumps(scenario))
    with pytest.raises(ConfigError, match="folder"):
        read_index(tmp_path)


@pytest.mark.parametrize("name", ["../../secret", "/etc/x"])
def test_arrays_of_a_flat_set_stay_inside(tmp_path: Path, name: str) -> None:
    record = {"schema_version": 1, "arrays": {name: 1}}
    (tmp_path / "flat.json").write_text(json.dumps(record))
    (tmp_path / "traces.json").write_text(json.dumps(record))
    with pytest.raises(JoulefleetError):
        open_flat(tmp_path)


def test_a_folder_of_a_run_is_not_left_through_a_link_or_dots(tmp_path: Path) -> None:
    with RunStore(tmp_path).create("x", kind="bench") as run:
        (run.path / "way").symlink_to(tmp_path)
        for folder in ("..", "../x", "way", "way/x", "a/../../b", str(tmp_path)):
            with pytest.raises(StorageError, match="leads out"):
                run.subfolder(folder)
        assert run.subfolder("a/b").is_dir()


def _journal(folder: Path) -> None:
    Journal(folder / "x.jsonl")


def _table(folder: Path) -> None:
    TableWriter(folder, "x", pa.schema([("a", pa.int8())]), resume=True)


@pytest.mark.parametrize("writer", [_journal, _table])
@pytest.mark.parametrize("link", [symlink, hard_link])
def test_what_appends_never_appends_elsewhere(tmp_path: Path, precious: Path, writer, link) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "x"
    folder.mkdir()
    for name in ("x.jsonl", "x.arrows"):
        link(folder / name, precious)
    with contextlib.suppress(StorageError):  # refused, or a new file in its place
        writer(folder)
    assert precious.read_bytes() == PRECIOUS


def test_salvage_says_first_what_it_would_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = killed_run(tmp_path), killed_run(tmp_path)
    assert cli.run(["runs", "salvage", "--root", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert all(text in out for text in (first.name, second.name, "nothing was changed"))
    assert {summarise(run).state for run in (first, second)} == {"killed"}
    assert cli.run(["runs", "salvage", str(first), "--root", str(tmp_path)]) == 0
    assert (summarise(first).state, summarise(second).state) == ("salvaged", "killed")
    assert cli.run(["runs", "salvage", "--all", "--root", str(tmp_path)]) == 0
    assert summarise(second).state == "salvaged"


def test_a_foreign_record_suggests_no_program_of_its_own(tmp_path: Path) -> None:
    with RunStore(tmp_path).create("x", kind="experiment") as run:
        pass
    record = json.loads((run.path / "run.json").read_text())
    record["command"] = ["rm", "experiment", "run", "-rf", "~"]
    (run.path / "run.json").write_text(json.dumps(record))
    assert "`joulefleet " in how_to_go_on(run.path)
    assert "`rm " not in how_to_go_on(run.path)
