"""Class 6: a run folder from another lab: nothing leads out of it, nothing blocks."""

import contextlib
import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest

from emulator.runs.opening import read_index
from emulator.runs.reading import how_to_go_on
from harness import cli
from harness.evidence.capture import is_whole, salvage
from harness.lab.bench import _stages
from harness.results.overview import overview
from harness.results.stored_run import StoredRun
from joulefleet.errors import ConfigError, JoulefleetError, StorageError
from joulefleet.files import file_sha256
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


# The journal of a run: a file of lines, which anybody can cut, double, reorder and write.

Lines = list[dict[str, Any]]
STEP_VALUES = (
    *(None, True, -1, 2**70, 1e308, "", ["x"], {"a": 1}, "../../../etc", "a/b", "x" * 300),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59+00:00", "2026-01-01T00:00:00", "now"),
)
STEPS_OF = {
    "utc": STEP_VALUES,
    "job": (True, -1, "", ["x"], {"a": 1}, "../../../etc", "a/b", "x" * 300, ".."),
    "attempt": (None, True, -1, 2**70, 1e308, "1", [1]),
    "stage": (True, 1, ["x"], {"a": 1}),
    "error": (True, 1, ["x"], {"a": 1}),
    "planned": (True, 1, "x", {"a": 1}, [1], [["x"]], ["../../../etc"], [""]),
    "event": (None, True, 1, ["x"], {"a": 1}),
}


@pytest.fixture(scope="module")
def bench_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored_bench(tmp_path_factory.mktemp("journal"))


@pytest.fixture
def journal(bench_run: Path) -> Iterator[Path]:
    path = bench_run / "journal.jsonl"
    before = path.read_bytes()
    yield path
    path.unlink()
    path.write_bytes(before)


def steps(journal: Path) -> Lines:
    return [json.loads(line) for line in journal.read_text().splitlines()]


def write_steps(journal: Path, found: Lines) -> None:
    journal.write_text("".join(f"{json.dumps(one)}\n" for one in found))


def resume_words(run: Path) -> list[str]:
    config = run / "config"
    files = [str(config / "plan.toml"), "--inventory", str(config / "devices.toml")]
    return ["bench", "run", *files, "--resume", str(run)]


@pytest.mark.parametrize("name", STEPS_OF)
def test_a_step_that_nobody_wrote_is_refused(
    journal: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = steps(journal)
    for value in STEPS_OF[name]:
        write_steps(journal, [*whole[:4], {**whole[10], name: value}, *whole[4:]])
        assert cli.run(["bench", "status", str(journal.parent)]) == 1, value
        said = capsys.readouterr().err
        assert f"journal.jsonl:5: not a step of a run ({name} " in said, said
    if name != "planned":  # it may be missing
        write_steps(journal, [{key: value for key, value in whole[1].items() if key != name}])
        assert cli.run(["bench", "status", str(journal.parent)]) == (0 if name in ("stage", "attempt") else 1)
        assert "unexpected" not in capsys.readouterr().err


def test_what_reads_a_journal_refuses_it_by_its_line(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor does a resumed run ask a device for anything before it has read it."""
    run = journal.parent
    write_steps(journal, [*steps(journal), {"event": "stage", "utc": "soon", "job": "a"}])
    junit = ["export", str(run), "--format", "junit", "--out", str(tmp_path / "junit.xml")]
    for words in (["bench", "status", str(run)], ["bench", "show", str(run)], junit, resume_words(run)):
        assert cli.run(words) == 1
        assert "journal.jsonl:14: not a step" in capsys.readouterr().err
    with pytest.raises(StorageError, match="14: not a step"):
        _stages(run)
    stored = StoredRun(run)
    assert [line.state for line in stored.job_lines].count("finished") == 3, "captures stand for themselves"
    assert "journal.jsonl:14" in stored.problems["journal"]


def _cut(lines: Lines) -> Lines:
    return lines[:3] + lines[5:]


def _doubled(lines: Lines) -> Lines:
    return [one for line in lines for one in (line, line)]


def _reversed(lines: Lines) -> Lines:
    return lines[::-1]


def _gone(_: Lines) -> Lines:
    return []


def _of_another_run(lines: Lines) -> Lines:
    return [{**line, "job": line["job"].replace("softmax", "lenet5")} for line in lines]


@pytest.mark.parametrize("edit", [_cut, _doubled, _reversed, _gone, _of_another_run])
def test_what_is_finished_is_what_has_a_capture(
    journal: Path, edit: Callable[[Lines], Lines], tmp_path: Path
) -> None:
    """Whatever the journal says of it, and however its times run."""
    write_steps(journal, edit(steps(journal)))
    whole = {one.name for one in (journal.parent / "jobs").iterdir() if is_whole(one)}
    found = overview(journal.parent)
    assert {one.name for one in found.jobs if one.state == "finished"} == whole
    assert len(found.jobs) == 8
    xml = tmp_path / "junit.xml"
    assert cli.run(["export", str(journal.parent), "--format", "junit", "--out", str(xml)]) == 0
    cases = ET.parse(xml).getroot().findall("testsuite/testcase")
    assert all(float(case.get("time", "nan")) >= 0 for case in cases)


def test_a_job_that_a_journal_calls_finished_without_a_capture(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = steps(journal)
    (never,) = {one["job"] for one in whole} - {one.name for one in (journal.parent / "jobs").iterdir()}
    write_steps(journal, [*whole, {**whole[3], "job": never}])
    assert cli.run(["bench", "status", str(journal.parent)]) == 0
    said = capsys.readouterr().out
    assert "3 finished" in said
    assert "1 lost" in said
    assert "its capture is missing" in said
    xml = tmp_path / "junit.xml"
    assert cli.run(["export", str(journal.parent), "--format", "junit", "--out", str(xml)]) == 0
    assert "EvidenceLost" in xml.read_text()


def test_a_job_that_a_journal_calls_not_needed(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the plan has no rule for it, a run would be complete without it."""
    whole = steps(journal)
    write_steps(journal, [*whole, {**whole[3], "event": "not_needed"}])
    assert cli.run(resume_words(journal.parent)) == 1
    assert "the plan asks for every job" in capsys.readouterr().err


def test_a_line_without_end_hides_nothing_behind_it(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *rest = steps(journal)
    for megabytes, says in ((1, "3 finished"), (9, "journal.jsonl:1: a line of 8 MB or more")):
        write_steps(journal, [{**first, "stage": "x" * (megabytes << 20)}, *rest])
        cli.run(["bench", "status", str(journal.parent)])
        captured = capsys.readouterr()
        assert says in captured.out + captured.err


@pytest.mark.parametrize("link", [symlink, lambda path, _: os.mkfifo(path), lambda path, _: path.mkdir()])
@pytest.mark.parametrize("command", [["bench", "status"], ["bench", "show"], ["report"]])
def test_a_journal_that_is_no_file(tmp_path: Path, precious: Path, link, command: list[str]) -> None:  # type: ignore[no-untyped-def]
    run = killed_run(tmp_path / "runs")
    (run / "journal.jsonl").unlink()
    link(run / "journal.jsonl", precious)
    assert cli.run([*command, str(run)]) == 1
    assert precious.read_bytes() == PRECIOUS


@pytest.mark.timeout(60)
def test_a_file_of_terabytes_that_takes_no_room(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A hole in a file: it fits into a small archive, and asks for hours."""
    run = stored_bench(tmp_path / "runs")
    job = sorted((run / "jobs").iterdir())[0]
    os.truncate(job / "samples.arrows", 1 << 40)
    build = ["profile", "build", str(run)]
    for words in (["meter", "show", str(job)], ["bench", "show", str(run), job.name], build):
        assert cli.run(words) == 1
        assert "more than 7,300 samples take" in capsys.readouterr().err
    os.truncate(job / "markers.jsonl", 1 << 40)
    with pytest.raises(StorageError, match="more than 256 GB"):
        file_sha256(job / "markers.jsonl")
    os.truncate(run / "journal.jsonl", 1 << 40)
    assert cli.run(["runs", "salvage", str(run)]) == 1
    assert "more than 256 MB of records" in capsys.readouterr().err
