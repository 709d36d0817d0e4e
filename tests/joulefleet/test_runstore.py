import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from joulefleet.errors import ConfigError, StorageError, StorageFull
from joulefleet.records import read_record, write_record
from joulefleet.runstore import (
    Journal,
    RunRecord,
    RunStatus,
    RunStore,
    TableWriter,
    find_run,
    read_journal,
    read_table,
    salvage_run,
)
from joulefleet.runstore.folder import check_folder
from joulefleet.runstore.journal import cut_torn_line
from tests.conftest import REPOSITORY

SCHEMA = pa.schema([("n", pa.int64()), ("square", pa.float64())])


def rows(*numbers: int) -> dict[str, list[float]]:
    return {"n": list(numbers), "square": [float(n) ** 2 for n in numbers]}


def test_a_run_explains_itself(tmp_path: Path) -> None:
    with RunStore(tmp_path).create("demo", kind="bench", config={"plan.toml": "a = 1\n"}) as run:
        with run.table("numbers", SCHEMA) as table:
            table.append(rows(1, 2))
            assert (run.path / "numbers.arrows").exists()
        assert not (run.path / "numbers.arrows").exists()
    record = read_record(run.path / "run.json", RunRecord)
    assert (record.status, record.name, record.kind) == (RunStatus.COMPLETE, "demo", "bench")
    assert record.ended_utc is not None
    assert "python" in record.host
    assert (run.path / "config" / "plan.toml").read_text() == "a = 1\n"
    assert read_table(run.path, "numbers").to_pydict() == {"n": [1, 2], "square": [1.0, 4.0]}


def test_failures_and_interrupts_are_recorded(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with pytest.raises(ValueError, match="boom"), store.create("a", kind="t"):
        raise ValueError("boom")
    with pytest.raises(KeyboardInterrupt), store.create("b", kind="t"):
        raise KeyboardInterrupt
    assert [run.state for run in store.list()] == ["failed", "interrupted"]
    assert store.list()[0].record.error == "ValueError: boom"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    with TableWriter(tmp_path, "t", SCHEMA) as table:
        table.append(rows(1))
    with pytest.raises(StorageError, match="not overwritten"):
        TableWriter(tmp_path, "t", SCHEMA)
    with RunStore(tmp_path / "runs").create("r", kind="t") as run:
        write_record(run.path / "facts.json", run.record)
        with pytest.raises(StorageError, match="not overwritten"):
            write_record(run.path / "facts.json", run.record)


def test_wrong_columns_are_named(tmp_path: Path) -> None:
    with TableWriter(tmp_path, "t", SCHEMA) as table, pytest.raises(ValueError, match="'m', 'n'"):
        table.append({"m": [1], "square": [1.0]})


def test_a_folder_cannot_leave_the_run(tmp_path: Path) -> None:
    with RunStore(tmp_path).create("r", kind="t") as run, pytest.raises(StorageError, match="leads out"):
        run.table("t", SCHEMA, folder="../elsewhere")


def test_an_open_table_is_readable(tmp_path: Path) -> None:
    table = TableWriter(tmp_path, "t", SCHEMA)
    table.append(rows(1))
    table.append(rows(2, 3))
    assert read_table(tmp_path, "t")["n"].to_pylist() == [1, 2, 3]
    table.abandon()


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 100, 200])
def test_a_torn_batch_costs_only_itself(tmp_path: Path, cut: int) -> None:
    table = TableWriter(tmp_path, "t", SCHEMA)
    table.append(rows(1, 2))
    whole = (tmp_path / "t.arrows").stat().st_size
    table.append(rows(3, 4))
    table.abandon()
    os.truncate(tmp_path / "t.arrows", whole + cut)
    assert read_table(tmp_path, "t")["n"].to_pylist() == [1, 2]


def test_a_torn_schema_is_an_empty_table(tmp_path: Path) -> None:
    with RunStore(tmp_path).create("r", kind="t") as run:
        (run.path / "t.arrows").write_bytes(b"\xff\xff\xff\xff\x10\x00")
    assert salvage_run(run.path).tables == {"t.parquet": 0}


def kill_writer(root: Path, delay_s: float) -> tuple[Path, int]:
    """Start a writer, SIGKILL it, return its run and the rows it had confirmed."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("writer_process.py")), str(root), "100"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    path = Path(process.stdout.readline().strip())
    time.sleep(delay_s)
    process.send_signal(signal.SIGKILL)
    out, _ = process.communicate()
    lines = [line for line in out.splitlines(keepends=True) if line.endswith("\n")]
    return path, int(lines[-1]) if lines else 0


@pytest.mark.campaign
def test_sigkill_loses_at_most_the_last_batch(
    tmp_path: Path, campaign_count: Callable[[int, int], int], record_property: Callable[[str, object], None]
) -> None:
    kills = campaign_count(4, 50)
    rng = random.Random(1)
    for kill in range(kills):
        path, confirmed = kill_writer(tmp_path / str(kill), rng.uniform(0.0, 0.4))
        store = RunStore(path.parent)
        assert [run.state for run in store.list()] == ["killed"]
        report = salvage_run(path)
        numbers = read_table(path, "numbers")["n"].to_pylist()
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= confirmed
        assert report.tables["numbers.parquet"] == len(numbers)
        batches = [record["batch"] for record in read_journal(path / "notes.jsonl")]
        assert len(batches) >= confirmed // 100
        assert [run.state for run in store.list()] == ["salvaged"]
    record_property("kills", kills)


def test_salvage_refuses_a_living_run_and_may_be_repeated(tmp_path: Path) -> None:
    with (
        RunStore(tmp_path).create("r", kind="t") as run,
        pytest.raises(StorageError, match="another process"),
    ):
        salvage_run(run.path)
    first, second = salvage_run(run.path), salvage_run(run.path)
    assert first.status is second.status is RunStatus.COMPLETE


def test_a_kill_between_parquet_and_cleanup_is_harmless(tmp_path: Path) -> None:
    with RunStore(tmp_path).create("r", kind="t") as run, run.table("t", SCHEMA) as table:
        table.append(rows(1))
    (run.path / "t.arrows").write_bytes(b"left over")
    report = salvage_run(run.path)
    assert report.leftovers_removed == ["t.arrows"]
    assert read_table(run.path, "t").num_rows == 1


def test_salvage_leaves_a_closed_stream_as_it_is(tmp_path: Path) -> None:
    """Its hash is in a record; another part of the run was being written when the kill came."""
    run = RunStore(tmp_path).create("r", kind="t")
    with TableWriter(run.path, "done", SCHEMA, keep_stream=True) as table:
        table.append(rows(1, 2**32 - 1))
    closed = (run.path / "done.arrows").read_bytes()
    with TableWriter(run.path, "torn", SCHEMA, keep_stream=True) as table:
        table.append(rows(1, 2))
        table.append(rows(3, 2**32 - 1))
    torn = (run.path / "torn.arrows").read_bytes()
    run._lock.close()
    # Cut anywhere, also right behind bytes that look like the end mark.
    for length in range(len(torn) - 200, len(torn), 8):
        (run.path / "torn.arrows").write_bytes(torn[:length])
        salvage_run(run.path)
        assert (run.path / "done.arrows").read_bytes() == closed
        assert read_table(run.path, "torn").num_rows in (2, 4)


def test_streams_of_earlier_versions_stay_streams(tmp_path: Path) -> None:
    """They carry a product's name in their key."""
    run = RunStore(tmp_path).create("r", kind="t")
    earlier = SCHEMA.with_metadata({b"fedjoule.final": b"stream"})
    with TableWriter(run.path, "kept", earlier) as table:
        table.append(rows(1, 2))
    with TableWriter(run.path, "turned", SCHEMA.with_metadata({b"final": b"no"})) as table:
        table.append(rows(1, 2))
    assert {path.name for path in run.path.glob("*.*") if path.stem in ("kept", "turned")} == {
        "kept.arrows",
        "turned.parquet",
    }


def test_resume_continues_where_the_kill_was(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    run = store.create("r", kind="t", fingerprint="f1")
    table = run.table("t", SCHEMA)
    table.append(rows(1, 2))
    table.abandon()
    run._lock.close()
    with store.resume(run.path, fingerprint="f1") as again, again.table("t", SCHEMA, resume=True) as table:
        assert table.rows == 2
        table.append(rows(3))
    assert read_table(run.path, "t")["n"].to_pylist() == [1, 2, 3]
    assert store.list()[0].state == "complete"


def test_resume_after_salvage(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    path, _ = kill_writer(tmp_path, 0.05)
    salvage_run(path)
    before = read_table(path, "numbers").num_rows
    with store.resume(path, fingerprint="") as run, run.table("numbers", SCHEMA, resume=True) as table:
        table.append(rows(-1))
    assert read_table(path, "numbers")["n"].to_pylist() == [*range(before), -1]


def test_resume_checks_the_fingerprint_and_the_status(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with store.create("r", kind="t", fingerprint="f1") as run:
        pass
    with pytest.raises(ConfigError, match="another configuration"):
        store.resume(run.path, fingerprint="f2")
    with pytest.raises(StorageError, match="complete"):
        store.resume(run.path, fingerprint="f1")


def test_two_writers_are_refused(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with (
        store.create("r", kind="t", fingerprint="f") as run,
        pytest.raises(StorageError, match="another process"),
    ):
        store.resume(run.path, fingerprint="f")


def test_a_journal_survives_a_torn_line(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.jsonl") as journal:
        journal.append({"a": 1})
    with (tmp_path / "j.jsonl").open("ab") as file:
        file.write(b'{"a": 2')
    assert list(read_journal(tmp_path / "j.jsonl")) == [{"a": 1}]


@pytest.mark.parametrize("whole", [b"", b'{"a": 1}\n', b'{"a": 1}\n' * 30_000])
@pytest.mark.parametrize("torn", [0, 1, 7, 65_535, 65_536, 65_537, 131_072, 200_001])
def test_a_torn_line_of_any_length_is_cut_and_kept(tmp_path: Path, whole: bytes, torn: int) -> None:
    rest = bytes(33 + i % 90 for i in range(torn))
    path = tmp_path / "j.jsonl"
    path.write_bytes(whole + rest)
    assert cut_torn_line(path) == torn
    assert path.read_bytes() == whole
    assert (tmp_path / "j.jsonl.torn").exists() is bool(torn)
    if torn:
        assert (tmp_path / "j.jsonl.torn").read_bytes() == rest


@pytest.mark.parametrize(("levels", "refused"), [(32, False), (33, True)])
def test_folders_nested_without_end_are_refused(tmp_path: Path, levels: int, refused: bool) -> None:
    tmp_path.joinpath(*["f"] * levels).mkdir(parents=True)
    if not refused:
        check_folder(tmp_path)
        return
    with pytest.raises(StorageError, match="more than 32 levels deep"):
        check_folder(tmp_path)


def test_what_is_appended_to_is_the_owners_to_write_and_nobodys_to_execute(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Journal(tmp_path / "journal.jsonl") as journal:
            journal.append({"a": 1})
    finally:
        os.umask(before)
    assert (tmp_path / "journal.jsonl").stat().st_mode & 0o777 == 0o644


def test_a_bad_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "j.jsonl").write_text('{"a": 1}\nnonsense\n{"a": 3}\n')
    with pytest.raises(StorageError, match=r"j\.jsonl:2"):
        list(read_journal(tmp_path / "j.jsonl"))


def test_unreadable_runs_are_listed_not_skipped(tmp_path: Path) -> None:
    (tmp_path / "20260101T000000Z_bad_00000000").mkdir()
    (summary,) = RunStore(tmp_path).list()
    assert summary.state == "unreadable"
    assert "run.json" in summary.problem


def test_a_newer_schema_is_refused_with_its_version(tmp_path: Path) -> None:
    with RunStore(tmp_path).create("r", kind="t") as run:
        pass
    text = (run.path / "run.json").read_text().replace('"schema_version": 1', '"schema_version": 99')
    (run.path / "run.json").write_text(text)
    assert "99" in RunStore(tmp_path).list()[0].problem


def test_find_run_by_id_name_and_path(tmp_path: Path) -> None:
    with RunStore(tmp_path).create("alpha", kind="t") as run:
        pass
    for reference in (str(run.path), run.path.name, run.record.run_id, "alpha"):
        assert find_run(tmp_path, reference) == run.path
    with pytest.raises(StorageError, match="no run matches"):
        find_run(tmp_path, "beta")


def fill_up(table: TableWriter) -> int:
    """Append until the disk refuses; returns the rows that were accepted."""
    with pytest.raises(StorageFull, match="no space left") as caught:
        for i in range(100_000):
            table.append(rows(*range(i * 100, i * 100 + 100)))
    assert "salvage" in caught.value.hint
    return table.rows


def test_disk_full_keeps_what_was_written(small_disk: Callable[[], Path]) -> None:
    disk = small_disk()
    store = RunStore(disk / "runs")
    with pytest.raises(StorageFull), store.create("r", kind="t") as run, run.table("t", SCHEMA) as table:
        accepted = fill_up(table)
        raise StorageFull("as the caller would")
    assert read_table(run.path, "t")["n"].to_pylist() == list(range(accepted))
    assert store.list()[0].state in ("killed", "failed")  # there may be no room left even for the status
    with pytest.raises(StorageFull, match="salvage stopped"):
        salvage_run(run.path)
    subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
    assert salvage_run(run.path).tables == {"t.parquet": accepted}


def test_a_file_size_limit_counts_as_full(tmp_path: Path) -> None:
    """The same without root: the kernel refuses to grow a file beyond RLIMIT_FSIZE."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    table = TableWriter(tmp_path, "t", SCHEMA)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, old[1]))
        accepted = fill_up(table)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    table.append(rows(-1))  # once there is room again, writing goes on where it stopped
    table.close()
    assert read_table(tmp_path, "t")["n"].to_pylist() == [*range(accepted), -1]


def test_a_read_only_directory_is_said_plainly(small_disk: Callable[[], Path]) -> None:
    disk = small_disk()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(StorageError, match="cannot be written") as caught:
        RunStore(disk / "runs").create("r", kind="t")
    assert "--out" in caught.value.hint
