"""Tables at their edges: limits hit exactly, row groups, flushes, what a stranger's file may hold."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from joulefleet.errors import StorageError
from joulefleet.runstore import TableWriter, read_table, table_rows
from joulefleet.runstore import table as tables
from joulefleet.runstore.columns import Columns
from joulefleet.runstore.table import (
    is_closed,
    iter_batches,
    numbers,
    readable_batch,
    rewrite_stream,
    stays_stream,
    stream_to_parquet,
    table_path,
)

SCHEMA = pa.schema([("n", pa.int64())])
MIXED = pa.schema([("n", pa.int64()), ("a", pa.string()), ("x", pa.float64()), ("b", pa.binary())])


def written(folder: Path, *parts: list[int], name: str = "t", **options: Any) -> TableWriter:
    table = TableWriter(folder, name, SCHEMA, **options)
    for part in parts:
        table.append({"n": part})
    return table


def stream_of(path: Path, schema: pa.Schema, *batches: pa.RecordBatch, **options: Any) -> Path:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema, **options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return path


# Writing


def test_a_second_after_the_last_flush_the_next_append_flushes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[float] = []
    now = [100.0]
    monkeypatch.setattr(os, "fsync", lambda _: flushed.append(now[0]))
    monkeypatch.setattr(tables.time, "monotonic", lambda: now[0])
    table = TableWriter(tmp_path, "t", SCHEMA)
    for now[0] in (100.5, 101.0, 101.25, 101.5, 102.25, 102.5):
        table.append({"n": [1]})
    assert flushed == [101.25, 102.5]
    table.sync()
    table.abandon()
    assert flushed == [101.25, 102.5, 102.5, 102.5]
    assert table.rows == 6


def test_a_new_table_counts_from_nothing_and_so_does_one_that_is_resumed(tmp_path: Path) -> None:
    assert written(tmp_path, [1, 2]).rows == 2
    again = TableWriter(tmp_path, "new", SCHEMA, resume=True)
    assert again.rows == 0
    again.append({"n": [5]})
    again.close()
    assert read_table(tmp_path, "new")["n"].to_pylist() == [5]
    again = TableWriter(tmp_path, "new", SCHEMA, resume=True)
    assert again.rows == 1
    assert not (tmp_path / "new.parquet").exists()
    again.append({"n": [6]})
    again.close()
    assert read_table(tmp_path, "new")["n"].to_pylist() == [5, 6]


def test_an_open_stream_or_a_closed_table_is_not_overwritten(tmp_path: Path) -> None:
    written(tmp_path, [1]).abandon()
    written(tmp_path, [1], name="closed").close()
    for name in ("t", "closed"):
        with pytest.raises(StorageError, match="not overwritten"):
            TableWriter(tmp_path, name, SCHEMA)


def test_what_a_table_says_of_itself_is_kept_beside_that_it_stays_a_stream(tmp_path: Path) -> None:
    schema = SCHEMA.with_metadata({b"unit": b"A", b"zone": b"B"})
    assert not stays_stream(schema)
    assert not stays_stream(SCHEMA)
    with TableWriter(tmp_path, "t", schema, keep_stream=True) as table:
        table.append({"n": [1]})
    assert (tmp_path / "t.arrows").exists()
    kept = read_table(tmp_path, "t").schema
    assert kept.metadata == {b"unit": b"A", b"zone": b"B", b"final": b"stream"}
    assert stays_stream(kept)
    assert not stays_stream(SCHEMA.with_metadata({b"other": b"stream"}))
    assert not stays_stream(SCHEMA.with_metadata({b"final": b"parquet"}))


def test_batches_of_another_shape_are_refused(tmp_path: Path) -> None:
    table = TableWriter(tmp_path, "t", SCHEMA)
    with pytest.raises(ValueError, match="schema differs"):
        table.append(pa.RecordBatch.from_pydict({"m": [1]}))
    table.append(pa.RecordBatch.from_pydict({"n": [7]}))
    for columns in ({}, {"n": [1], "m": [2]}):
        with pytest.raises(ValueError, match="columns differ"):
            table.append(columns)
    assert table.rows == 1
    table.close()
    assert read_table(tmp_path, "t")["n"].to_pylist() == [7]


def test_leaving_with_an_error_keeps_the_stream_and_leaves_nothing_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(RuntimeError), TableWriter(tmp_path, "t", SCHEMA) as table:
        table.append({"n": [1]})
        raise RuntimeError
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert [p.name for p in tmp_path.iterdir()] == ["t.arrows"]
    with TableWriter(tmp_path, "u", SCHEMA) as table:
        table.append({"n": [1]})
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, None, 3, 4, None, 6, 7, 8, None, 10], pa.int64(), [1, None, 3, 4, None, 6, 7, 8, None, 10]),
        ([1.5, None], pa.float64(), [1.5, None]),
        ([1, 2], pa.float64(), [1.0, 2.0]),
        ([2.0, None, 4.0], pa.int64(), [2, None, 4]),
        ([3, 2], pa.uint8(), [3, 2]),
        ([True, None, False], pa.bool_(), [True, None, False]),
        (["a", None], pa.string(), ["a", None]),
        (np.array([1.5, 2.5], np.float32), pa.float64(), [1.5, 2.5]),
        (np.array([1, 2], np.int16), pa.int64(), [1, 2]),
        (np.array([1, 2, 3, 4])[::2], pa.int64(), [1, 3]),
        (np.array([2.0, 3.0]), pa.int64(), [2, 3]),
        ([], pa.int64(), []),
    ],
)
def test_columns_are_stored_as_they_are(
    tmp_path: Path, values: Any, kind: pa.DataType, expected: list[Any]
) -> None:
    schema = pa.schema([("v", kind)])
    with TableWriter(tmp_path, "t", schema) as table:
        table.append({"v": values})
    found = read_table(tmp_path, "t")
    assert found.schema == schema
    assert found["v"].to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1.5], pa.int64()),
        ([1.5, None], pa.int64()),
        (np.array([1.5]), pa.int64()),
        (np.array([300]), pa.uint8()),
        ([300], pa.uint8()),
        ([-1], pa.uint8()),
        (["1"], pa.int64()),
    ],
)
def test_what_would_lose_something_is_refused(tmp_path: Path, values: Any, kind: pa.DataType) -> None:
    table = TableWriter(tmp_path, "t", pa.schema([("v", kind)]))
    with pytest.raises((pa.ArrowException, OverflowError, ValueError, TypeError)):
        table.append({"v": values})
    table.abandon()
    assert read_table(tmp_path, "t").num_rows == 0


def test_columns_of_numbers_as_arrays() -> None:
    assert numbers(pa.array([1, None, 3])).tolist() == [1, -1, 3]
    assert numbers(pa.array([1, 2])).tolist() == [1, 2]
    assert numbers(pa.chunked_array([[1, 2], [None, 4], [5]])).tolist() == [1, 2, -1, 4, 5]
    nothing = numbers(pa.chunked_array([], pa.int16()))
    assert (nothing.dtype, len(nothing)) == (np.int16, 0)


# Streams to Parquet


def group_rows(path: Path) -> list[int]:
    facts = pq.read_metadata(path)
    return [facts.row_group(i).num_rows for i in range(facts.num_row_groups)]


def test_row_groups_end_at_so_many_rows_or_bytes(tmp_path: Path) -> None:
    """262,144 rows of a byte; 4 MB, which are 131,072 rows of 32 bytes."""
    wide = pa.schema([(name, pa.float64()) for name in "abcd"])
    for name, schema, rows in (("narrow", pa.schema([("a", pa.uint8())]), 262_144), ("wide", wide, 131_072)):
        with TableWriter(tmp_path, name, schema) as table:
            for count in (rows - 1, 1, rows - 1, 1, 5):
                table.append({f.name: np.zeros(count, f.type.to_pandas_dtype()) for f in schema})
        assert group_rows(tmp_path / f"{name}.parquet") == [rows, rows, 5]
        assert read_table(tmp_path, name).num_rows == table_rows(tmp_path / f"{name}.parquet") == 2 * rows + 5


def test_many_small_batches_are_one_group(tmp_path: Path) -> None:
    with TableWriter(tmp_path, "t", SCHEMA) as table:
        for i in range(600):
            table.append({"n": [i]})
    assert group_rows(tmp_path / "t.parquet") == [600]
    assert read_table(tmp_path, "t")["n"].to_pylist() == list(range(600))


def test_texts_have_dictionaries_and_numbers_have_none(tmp_path: Path) -> None:
    with TableWriter(tmp_path, "t", MIXED) as table:
        table.append({"n": [1, 2], "a": ["x", "x"], "x": [0.5, 0.5], "b": [b"y", b"y"]})
    group = pq.read_metadata(tmp_path / "t.parquet").row_group(0)
    found = {group.column(i).path_in_schema: group.column(i) for i in range(4)}
    assert [found[name].has_dictionary_page for name in ("n", "a", "x", "b")] == [False, True, False, True]
    assert {column.compression for column in found.values()} == {"ZSTD"}
    assert read_table(tmp_path, "t").schema == MIXED


def test_a_stream_is_removed_when_its_table_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, parquet = written(tmp_path, [1, 2], [3]).stream_path, tmp_path / "t.parquet"
    (tmp_path / ".t.parquet.tmp").symlink_to(tmp_path / "elsewhere")
    flushed: list[tuple[str, int]] = []
    monkeypatch.setattr(
        os,
        "fsync",
        lambda fd: flushed.append((Path(f"/proc/self/fd/{fd}").readlink().name, os.fstat(fd).st_size)),
    )
    assert stream_to_parquet(stream, parquet) == 3
    assert [p.name for p in tmp_path.iterdir()] == ["t.parquet"]
    assert (".t.parquet.tmp", parquet.stat().st_size) in flushed


def test_a_table_that_is_there_already_stays_and_so_does_the_stream(tmp_path: Path) -> None:
    stream = written(tmp_path, [1, 2]).stream_path
    (tmp_path / "t.parquet").write_text("kept")
    with pytest.raises(StorageError, match="exists already"):
        stream_to_parquet(stream, tmp_path / "t.parquet")
    with pytest.raises(StorageError):
        stream_to_parquet(stream, tmp_path / "none" / "t.parquet")
    assert (tmp_path / "t.parquet").read_text() == "kept"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.arrows", "t.parquet"]


def test_a_table_that_does_not_read_back_whole_is_not_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = written(tmp_path, [1, 2]).stream_path
    monkeypatch.setattr(pq.ParquetWriter, "write_table", lambda *_: None)
    with pytest.raises(StorageError, match="did not read back whole"):
        stream_to_parquet(stream, tmp_path / "t.parquet")
    assert [p.name for p in tmp_path.iterdir()] == ["t.arrows"]


def test_a_stream_without_a_schema_is_removed(tmp_path: Path) -> None:
    (tmp_path / "t.arrows").write_bytes(b"\xff\xff")
    assert stream_to_parquet(tmp_path / "t.arrows", tmp_path / "t.parquet") == 0
    assert list(tmp_path.iterdir()) == []


def test_a_stream_is_rewritten_without_its_end_and_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = written(tmp_path, [1, 2], [3], [4]).stream_path
    target = tmp_path / "u.arrows"
    sizes: dict[str, int] = {}
    monkeypatch.setattr(
        os,
        "fsync",
        lambda fd: sizes.update({Path(f"/proc/self/fd/{fd}").readlink().name: os.fstat(fd).st_size}),
    )
    rewrite_stream(source, target, SCHEMA)
    (synced,) = (size for name, size in sizes.items() if re.fullmatch(r"\.u\.arrows\.\w+\.tmp", name))
    assert synced == target.stat().st_size
    assert read_table(tmp_path, "u")["n"].to_pylist() == [1, 2, 3, 4]
    rewrite_stream(source, target, SCHEMA, limit=2)
    assert read_table(tmp_path, "u")["n"].to_pylist() == [1, 2, 3]
    assert not is_closed(target)
    with pytest.raises(StorageError, match="columns differ"):
        rewrite_stream(source, target, pa.schema([("m", pa.int64())]))
    with pytest.raises(StorageError):
        rewrite_stream(source, tmp_path / "none" / "u.arrows", SCHEMA)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.arrows", "u.arrows"]


def test_only_a_stream_with_its_end_and_nothing_after_is_closed(tmp_path: Path) -> None:
    with written(tmp_path, [1], [2], keep_stream=True):
        pass
    path = tmp_path / "t.arrows"
    whole = path.read_bytes()
    assert is_closed(path)
    for data in (
        whole[:-8],
        whole[:-4],
        whole[:-20],
        whole + b"more",
        whole + whole[-8:],
        b"",
        b"\xff\xff\xff\xff",
    ):
        path.write_bytes(data)
        assert not is_closed(path)


# Reading what somebody else wrote


def test_tables_are_found_closed_or_open(tmp_path: Path) -> None:
    written(tmp_path, [1], [2, 3]).abandon()
    assert table_rows(tmp_path / "t.arrows") == 3
    assert table_path(tmp_path, "t") == tmp_path / "t.arrows"
    written(tmp_path, [1], [2], name="u").close()
    assert table_path(tmp_path, "u") == tmp_path / "u.parquet"
    assert table_rows(tmp_path / "u.parquet") == 2
    with pytest.raises(StorageError, match="no table 'v'"):
        table_path(tmp_path, "v")


def test_empty_tables_keep_their_columns(tmp_path: Path) -> None:
    written(tmp_path).abandon()
    written(tmp_path, name="u").close()
    for name in ("t", "u"):
        assert read_table(tmp_path, name).schema == SCHEMA
        assert read_table(tmp_path, name).num_rows == 0
    (tmp_path / "v.arrows").write_bytes(b"")
    assert read_table(tmp_path, "v").num_columns == 0


def test_an_empty_table_of_other_columns_is_refused(tmp_path: Path) -> None:
    written(tmp_path).abandon()
    written(tmp_path, name="u").close()
    for name in ("t", "u"):
        assert read_table(tmp_path, name, Columns(SCHEMA)).num_rows == 0
        with pytest.raises(StorageError, match="has no column 'm'"):
            read_table(tmp_path, name, Columns(pa.schema([("m", pa.int64())])))


def test_what_is_no_parquet_is_damaged_and_what_is_gone_is_gone(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1 nothing of it PAR1")
    for read in (table_rows, lambda path: list(iter_batches(path))):
        with pytest.raises(StorageError, match="is damaged"):
            read(tmp_path / "t.parquet")
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "gone.parquet")


def test_a_batch_may_take_so_much_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice 10 numbers of 8 bytes and 10 bits, 10 texts of 3 and 10 of 5 bytes, though stored once: 244."""
    none = pa.schema([*MIXED, ("none", pa.string())])
    texts = {"a": ["abc"] * 10, "b": [b"vwxyz"] * 10, "none": [None] * 10}
    with TableWriter(tmp_path, "t", none) as table:
        table.append({"n": list(range(10)), "x": [0.5] * 10, **texts})
    monkeypatch.setattr(tables, "BATCH_BYTES", 244)
    assert read_table(tmp_path, "t").num_rows == 10
    monkeypatch.setattr(tables, "BATCH_BYTES", 243)
    with pytest.raises(StorageError, match="no table of ours"):
        read_table(tmp_path, "t")


@pytest.mark.parametrize("close", [True, False])
def test_a_table_may_take_so_much_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, close: bool
) -> None:
    """125 numbers of 8 bytes; Parquet has a bit for each besides, 16 bytes in all."""
    table = written(tmp_path, list(range(100)), list(range(25)))
    (table.close if close else table.abandon)()
    most = 1016 if close else 1000
    monkeypatch.setattr(tables, "TABLE_BYTES", most)
    assert read_table(tmp_path, "t").num_rows == 125
    monkeypatch.setattr(tables, "TABLE_BYTES", most - 1)
    with pytest.raises(StorageError, match="takes more"):
        read_table(tmp_path, "t")


def as_parquet(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path.with_suffix(".parquet"))


def as_stream(path: Path, table: pa.Table) -> None:
    stream_of(path.with_suffix(".arrows"), table.schema, *table.to_batches())


@pytest.mark.parametrize("store", [as_parquet, as_stream])
def test_so_many_columns_and_none_within_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Callable[[Path, pa.Table], None]
) -> None:
    monkeypatch.setattr(tables, "COLUMNS", 3)
    for count in (3, 4):
        store(tmp_path / f"c{count}", pa.table({f"c{i}": [i] for i in range(count)}))
    assert read_table(tmp_path, "c3").num_rows == 1
    with pytest.raises(StorageError, match="4 columns"):
        read_table(tmp_path, "c4")
    store(tmp_path / "nested", pa.table({"a": [1], "b": [[1, 2]]}))
    with pytest.raises(StorageError, match="1 of them nested"):
        read_table(tmp_path, "nested")


def not_utf8() -> pa.Array:
    offsets, data = np.array([0, 1, 3], np.int32), b"a\xff\xfe"
    return pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def test_texts_are_checked_in_every_column(tmp_path: Path) -> None:
    """In a stream the batch counts as torn; a table that was closed is damaged."""
    schema = pa.schema([("n", pa.int64()), ("a", pa.string())])
    good = pa.RecordBatch.from_pydict({"n": [1, 2], "a": ["x", "y"]}, schema=schema)
    bad = pa.RecordBatch.from_arrays([pa.array([3, 4]), not_utf8()], schema=schema)
    stream_of(tmp_path / "t.arrows", schema, good, bad)
    assert read_table(tmp_path, "t")["n"].to_pylist() == [1, 2]
    pq.write_table(pa.Table.from_batches([bad]), tmp_path / "u.parquet")
    with pytest.raises(StorageError):
        read_table(tmp_path, "u")


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_packed_batches_and_dictionaries_are_none_of_ours(tmp_path: Path, compression: str) -> None:
    batch = pa.RecordBatch.from_pydict({"n": list(range(1000))})
    packed = pa.ipc.IpcWriteOptions(compression=compression)
    stream_of(tmp_path / "packed.arrows", batch.schema, batch, options=packed)
    keys = pa.RecordBatch.from_arrays([pa.array(["x", "y", "x"]).dictionary_encode()], ["k"])
    stream_of(tmp_path / "keys.arrows", keys.schema, keys)
    for name in ("packed", "keys"):
        with pytest.raises(StorageError, match="no table of ours"):
            read_table(tmp_path, name)
    plain = readable_batch(batch.serialize(), batch.schema)
    assert plain.equals(batch)
    with pytest.raises(tables.OverBudget):
        readable_batch(pa.ipc.read_message(batch.schema.serialize()), batch.schema)


@pytest.mark.parametrize("words", [None, {"a": "b"}, {"key": "x" * 50, "other": "y" * 7}])
@pytest.mark.parametrize("columns", [1, 5])
def test_packed_or_not_whatever_else_a_header_says(columns: int, words: dict[str, str] | None) -> None:
    batch = pa.RecordBatch.from_pydict({f"c{i}": list(range(1000)) for i in range(columns)})
    for packed in (None, "lz4"):
        sink, options = pa.BufferOutputStream(), pa.ipc.IpcWriteOptions(compression=packed)
        with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch, custom_metadata=words)
        messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
        messages.read_next_message()  # the schema
        header = messages.read_next_message().metadata.to_pybytes()
        assert tables._is_packed(header) is (packed is not None)


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_a_header_that_cannot_be_read_counts_as_packed(columns: int) -> None:
    batch = pa.RecordBatch.from_pydict({f"c{i}": [1, 2] for i in range(columns)})
    header = pa.ipc.read_message(batch.serialize()).metadata.to_pybytes()
    assert not tables._is_packed(header)
    assert tables._is_packed(header[:2])
    assert tables._is_packed(b"")
