"""Bulk tables: an Arrow IPC stream while writing (``name.arrows``), Parquet once closed (``name.parquet``).

A table that must be memory-mapped later (power samples, ADR-0004) stays a stream: its schema says so.

Every append is all or nothing. A batch reaches the operating system before ``append`` returns, so a
SIGKILL loses nothing that was appended; if the disk fills up, the torn batch is cut off again and what
was there before stays readable. A power cut loses what was appended in the last second or so, unless `sync`
was called.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joulefleet.budgets import BATCH_BYTES, COLUMNS, TABLE_BYTES, OverBudget
from joulefleet.errors import StorageError
from joulefleet.files import new_file, publish, storage_error
from joulefleet.runstore.columns import Columns
from joulefleet.runstore.journal import AppendOnlyFile

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

STREAM_SUFFIX = ".arrows"
PARQUET_SUFFIX = ".parquet"
_FINAL = b"final"
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_ROW_GROUP_ROWS = 262_144
_ROW_GROUP_BYTES = 4 << 20
_PENDING_BATCHES = 256  # then they are joined: a batch of one row takes some 100 times its data
_FSYNC_PERIOD_S = 1.0


class TableWriter(AppendOnlyFile):
    """Appends record batches to ``<directory>/<name>.arrows`` and turns it into Parquet on a clean close.

    Use as a context manager: leaving without an exception closes cleanly, with one it keeps the stream.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        schema: pa.Schema,
        *,
        resume: bool = False,
        keep_stream: bool = False,
    ) -> None:
        if keep_stream:
            schema = schema.with_metadata({**(schema.metadata or {}), _FINAL: b"stream"})
        self.stream_path = directory / (name + STREAM_SUFFIX)
        self.parquet_path = directory / (name + PARQUET_SUFFIX)
        self.schema = schema
        self.rows = 0
        if resume:
            self._reopen()
        elif self.parquet_path.exists() or self.stream_path.exists():
            raise StorageError(f"{self.parquet_path}: exists already, not overwritten")
        super().__init__(self.stream_path)
        self._synced_at = time.monotonic()
        if self.stream_path.stat().st_size == 0:
            self._write(schema.serialize())

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def append(self, columns: Mapping[str, Any] | pa.RecordBatch) -> None:
        """Append rows: a record batch, or columns by name (arrays or lists of equal length)."""
        import pyarrow as pa

        if isinstance(columns, pa.RecordBatch):
            batch = columns
            if not batch.schema.equals(self.schema):
                raise ValueError(f"{self.stream_path.stem}: schema differs: {batch.schema} != {self.schema}")
        else:
            unknown = set(columns) ^ set(self.schema.names)
            if unknown:
                raise ValueError(
                    f"{self.stream_path.stem}: columns differ from the schema: {sorted(unknown)}"
                )
            arrays = [_column(columns[field.name], field.type) for field in self.schema]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        self._write(batch.serialize())
        self.rows += batch.num_rows

    def close(self) -> Path:
        """Finish the stream; unless it is to stay one, write Parquet and remove it. Returns the file."""
        self._write(_END_OF_STREAM)
        self.abandon()
        if stays_stream(self.schema):
            return self.stream_path
        stream_to_parquet(self.stream_path, self.parquet_path)
        return self.parquet_path

    def _write(self, data: Any, *, sync: bool = False) -> None:
        sync = sync or time.monotonic() - self._synced_at > _FSYNC_PERIOD_S
        super()._write(data, sync=sync)
        if sync:
            self._synced_at = time.monotonic()

    def _reopen(self) -> None:
        """Make the table a stream again, cut to its whole batches, ready for more."""
        if self.parquet_path.exists():
            rewrite_stream(self.parquet_path, self.stream_path, self.schema)
            self.parquet_path.unlink()
        elif self.stream_path.exists():
            rewrite_stream(self.stream_path, self.stream_path, self.schema)
        self.rows = table_rows(self.stream_path) if self.stream_path.exists() else 0


def _column(values: Any, kind: pa.DataType) -> pa.Array:
    """One column of a batch.

    `pyarrow.array` imports pandas when it is first called, for most of a second and in the middle of a
    capture. Numbers, which is all that a capture writes, go without it.
    """
    import numpy as np
    import pyarrow as pa

    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return pa.array(values, kind)
    valid = None
    if isinstance(values, list) and None in values:
        valid = np.array([value is not None for value in values])
        values = [0 if value is None else value for value in values]
    target = np.dtype(kind.to_pandas_dtype())
    data = np.asarray(values)
    if data.dtype != target and not (isinstance(values, list) and data.dtype.kind in ("i", target.kind)):
        # Which refuses a cast that loses something; of a list it would make whole numbers out of any.
        return pa.array(data, kind, mask=None if valid is None else ~valid)
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        kind, len(data), [bitmap, pa.py_buffer(np.ascontiguousarray(values, target))]
    )


def numbers(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """A column of numbers as an array, -1 where there is none; like `_column` without pandas."""
    import numpy as np
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        parts = [numbers(chunk) for chunk in column.chunks]
        return np.concatenate(parts) if parts else np.empty(0, column.type.to_pandas_dtype())
    if column.null_count:
        return np.array([-1 if value is None else value for value in column.to_pylist()])
    return np.from_dlpack(column)


def stays_stream(schema: pa.Schema) -> bool:
    """Whether a table keeps the stream form when it is closed or salvaged."""
    # Streams of before had a product's name and a dot in front of the key.
    facts = (schema.metadata or {}).items()
    return any(key.rpartition(b".")[2] == _FINAL and value == b"stream" for key, value in facts)


def rewrite_stream(source: Path, target: Path, schema: pa.Schema, *, limit: int | None = None) -> None:
    """Copy the whole batches of a table (the first ``limit``) into a fresh stream without an end mark."""
    with new_file(target, replace=True) as file:
        file.write(schema.serialize())
        for batch in islice(iter_batches(source), limit):
            if not batch.schema.equals(schema):
                raise StorageError(f"{source}: columns differ from what is to be appended")
            file.write(batch.serialize())


def stream_to_parquet(stream: Path, parquet: Path) -> int:
    """Convert a stream, whole or torn, to Parquet in bounded memory; then remove the stream.

    Returns:
        The number of rows kept.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    temporary = parquet.with_name(f".{parquet.name}.tmp")
    rows = 0
    try:
        with contextlib.ExitStack() as stack:
            writer: Any = None
            pending: list[pa.RecordBatch] = []
            pending_rows = pending_bytes = 0
            schema = stream_schema(stream)
            if schema is None:  # killed before even the schema was written: there is nothing to convert
                stream.unlink()
                return 0
            # A dictionary of numbers that hardly repeat is as large as they are, for each column.
            texts = [field.name for field in schema if not pa.types.is_primitive(field.type)]
            temporary.unlink(missing_ok=True)
            file = stack.enter_context(temporary.open("xb"))
            writer = stack.enter_context(
                pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=texts)
            )
            for batch in iter_batches(stream):
                pending.append(batch)
                rows += batch.num_rows
                pending_rows += batch.num_rows
                pending_bytes += batch.nbytes
                if pending_rows >= _ROW_GROUP_ROWS or pending_bytes >= _ROW_GROUP_BYTES:
                    writer.write_table(pa.Table.from_batches(pending))
                    pending.clear()
                    pending_rows = pending_bytes = 0
                elif len(pending) >= _PENDING_BATCHES:
                    pending = pa.Table.from_batches(pending).combine_chunks().to_batches()
            if pending:
                writer.write_table(pa.Table.from_batches(pending))
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        if pq.read_metadata(temporary).num_rows != rows:
            raise StorageError(f"{parquet}: did not read back whole, {stream} is kept")
        publish(temporary, parquet, replace=False)
        stream.unlink()
    except FileExistsError as error:
        raise StorageError(f"{parquet}: exists already, not overwritten") from error
    except OSError as error:
        raise storage_error(parquet, error) from error
    finally:
        temporary.unlink(missing_ok=True)
    return rows


def stream_schema(stream: Path) -> pa.Schema | None:
    """The schema of a stream, or None if the writer was killed before it was on disk."""
    import pyarrow as pa

    try:
        with pa.OSFile(str(stream), "rb") as file, pa.ipc.open_stream(file) as reader:
            return reader.schema
    except (pa.ArrowInvalid, EOFError):
        return None


def is_closed(stream: Path) -> bool:
    """Whether a stream is whole up to its end mark, so that its bytes may be what a hash was taken of."""
    import pyarrow as pa

    with pa.OSFile(str(stream), "rb") as file:
        reader = pa.ipc.MessageReader.open_stream(file)
        try:
            while True:
                reader.read_next_message()
        except StopIteration:
            # The end mark is optional for readers: without it they stop at the end of the file just as well.
            whole = file.tell() == file.size()
            file.seek(max(0, file.size() - len(_END_OF_STREAM)))
            return bool(whole and file.read() == _END_OF_STREAM)
        except (pa.ArrowInvalid, OSError):
            return False


def iter_batches(path: Path, columns: Columns | None = None) -> Iterator[pa.RecordBatch]:
    """The batches of a table, Parquet or stream; a torn last batch of a stream is left out.

    Args:
        path: Of the table.
        columns: What the caller relies on; None if it takes any.

    Raises:
        StorageError: What the file says of its lengths cannot be, or asks for more than any table of ours;
            or its columns are others.
    """
    import pyarrow as pa

    try:
        with _damage_named(path) if path.suffix == PARQUET_SUFFIX else contextlib.nullcontext():
            batches = _parquet_batches(path) if path.suffix == PARQUET_SUFFIX else _stream_batches(path)
            for batch in batches:
                if columns is not None:
                    columns.check(path, batch)
                yield batch
    except (
        *(OverBudget, MemoryError, OverflowError, UnicodeDecodeError, pa.ArrowCapacityError),
        *(pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError, pa.ArrowIndexError),
    ) as error:
        raise StorageError(f"{path}: is no table of ours ({error})", hint="restore it from a copy") from error


@contextlib.contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """What is no Parquet raises as ArrowInvalid, or as an OSError that no operating system has raised."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise StorageError(
            f"{path}: is damaged ({error})", hint="restore it from a copy, or make the run anew"
        ) from error


def _parquet_batches(path: Path) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pq.read_schema(path)
    _check_schema(schema)
    # A text that is stored once and repeated a billion times stays stored once, until its size is known.
    texts = [
        field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_binary(field.type)
    ]
    with pq.ParquetFile(path, read_dictionary=texts) as parquet:
        for batch in parquet.iter_batches(_ROW_GROUP_ROWS):
            sizes = [_unpacked_bytes(column) for column in batch.columns]
            if sum(sizes) > BATCH_BYTES:
                raise OverBudget(f"{batch.num_rows} rows take {sum(sizes) >> 20} MB")
            plain = batch.cast(schema) if texts else batch
            plain.validate(full=bool(texts))  # texts are UTF-8
            yield plain


def _unpacked_bytes(column: pa.Array) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    return int(pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0)


def _check_schema(schema: pa.Schema) -> None:
    import pyarrow as pa

    nested = [field.name for field in schema if pa.types.is_nested(field.type)]
    if len(schema) > COLUMNS or nested:
        raise OverBudget(f"{len(schema)} columns, {len(nested)} of them nested")


def _stream_batches(path: Path) -> Iterator[pa.RecordBatch]:
    for batch, _ in follow_stream(path, 0):
        yield batch


def follow_stream(path: Path, offset: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Whole batches of a stream, each with the byte where the next one begins; it may still be growing.

    Args:
        path: The stream.
        offset: Where to begin: 0, or a byte that came with a batch.
    """
    import pyarrow as pa

    # pyarrow reports a message cut short as ArrowInvalid or as a plain OSError, by where the cut is.
    schema = stream_schema(path) if offset else None
    with pa.OSFile(str(path), "rb") as file:
        file.seek(offset)
        reader = pa.ipc.MessageReader.open_stream(file)
        while True:
            try:
                message = reader.read_next_message()
                if schema is None:
                    schema = pa.ipc.read_schema(message)
                    _check_schema(schema)
                    continue
                batch = readable_batch(message, schema)
            except (StopIteration, pa.ArrowInvalid, OSError):
                return
            yield batch, file.tell()


def readable_batch(message: pa.Message | pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of a stream, whose buffers are as long as it says: pyarrow itself would read beyond them.

    Raises:
        ArrowInvalid: It is damaged.
        OverBudget: It is packed, which ours never are: eight bytes could ask for any amount of memory.
    """
    import pyarrow as pa

    if isinstance(message, pa.Buffer):
        message = pa.ipc.read_message(message)
    if message.type != "record batch" or _is_packed(message.metadata.to_pybytes()):
        raise OverBudget(f"a {message.type} that is packed or not a batch of rows")
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=not all(pa.types.is_primitive(field.type) for field in schema))
    return batch


def _is_packed(metadata: bytes) -> bool:
    """Whether the field ``compression`` of a batch's header is there (Arrow: Message.fbs, RecordBatch)."""
    try:
        message = struct.unpack_from("<I", metadata)[0]
        header = message + _field(metadata, message, 2)
        header += struct.unpack_from("<I", metadata, header)[0]
        return _field(metadata, header, 3) != 0
    except struct.error:
        return True


def _field(metadata: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffers table lies, from the table's beginning; 0 if it is not there."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    at = 4 + 2 * number
    size = struct.unpack_from("<H", metadata, vtable)[0]
    return int(struct.unpack_from("<H", metadata, vtable + at)[0]) if at < size else 0


def table_path(directory: Path, name: str) -> Path:
    """Where a table is now: Parquet if it was closed, else its stream."""
    for suffix in (PARQUET_SUFFIX, STREAM_SUFFIX):
        path = directory / (name + suffix)
        if path.exists():
            return path
    raise StorageError(
        f"{directory}: no table {name!r}", hint="`joulefleet runs list` shows what a run holds"
    )


def read_table(directory: Path, name: str, columns: Columns | None = None) -> pa.Table:
    """A whole table, closed or not.

    Args:
        directory: Where it is.
        name: Of the table.
        columns: What the caller relies on; None if it takes any.

    Raises:
        StorageError: There is none, it was damaged after it was closed, or its columns are others.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = table_path(directory, name)
    batches, held = [], 0
    for batch in iter_batches(path, columns):
        batches.append(batch)
        held += batch.nbytes
        if held > TABLE_BYTES:
            raise StorageError(f"{path}: takes more than {TABLE_BYTES >> 30} GB unpacked")
    if batches:
        return pa.Table.from_batches(batches)
    schema = pq.read_schema(path) if path.suffix == PARQUET_SUFFIX else stream_schema(path)
    if schema is None:  # cut short before its columns were written
        return pa.schema([]).empty_table()
    empty = schema.empty_table()
    if columns is not None:
        columns.check(path, empty)
    return empty


def table_rows(path: Path) -> int:
    """Number of rows of a table file."""
    import pyarrow.parquet as pq

    if path.suffix == PARQUET_SUFFIX:
        with _damage_named(path):
            return int(pq.read_metadata(path).num_rows)
    return sum(batch.num_rows for batch in iter_batches(path))
