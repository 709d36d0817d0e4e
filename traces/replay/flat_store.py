"""The flat form on disk: one ``.npy`` file per array, memory-mapped when opened.

::

    <folder>/
      flat.json        what this is, made from which trace set with which intensity table
      users.parquet    one row per user, in the order of the arrays
      <array>.npy      see `traces.replay.flat`

Writing takes memory for one block of users; opening takes none: pages are read when they are asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from joulefleet.errors import StorageError
from joulefleet.files import new_folder, storage_error
from joulefleet.provenance import Provenance, Sha256
from joulefleet.records import StoredRecord, read_record, write_record
from joulefleet.runstore.columns import Columns
from joulefleet.runstore.folder import InsidePath, check_folder
from joulefleet.runstore.table import iter_batches
from traces.replay.flat import STEP_ARRAYS, VALUE_ARRAYS, FlatTraces, flatten, from_arrays
from traces.replay.intensity import IntensityTable, default_table
from traces.storage.trace_set import TraceSet

if TYPE_CHECKING:
    from traces.model import InteractionTrace

FLAT_FILE = "flat.json"
USERS_FILE = "users.parquet"
_STEPS = dict(zip(STEP_ARRAYS, ("int64", "int64", "int64", "int64", "int32"), strict=True))
DTYPES = {
    "start_ns": "int64",
    "span_ns": "int64",
    **{f"{group}.{name}": dtype for group in VALUE_ARRAYS for name, dtype in _STEPS.items()},
    **{name: "float64" for names in VALUE_ARRAYS.values() for name in names},
    "flags": "uint16",
    "app": "int32",
    "cpu": "float32",
    "memory": "float32",
    "known_ns": "int64",
}
"""Of every array."""


class FlatRecord(StoredRecord):
    """What a folder of arrays holds.

    Attributes:
        users: Number of users.
        arrays: Length of each array.
        apps: Names behind the numbers in ``app``.
        categories: Category of each app.
        table: Name of the intensity table that was used.
        table_sha256: Its content.
        trace_set_sha256: The manifest of the trace set it was made from, if there is one.
        time_zones: All that the users name, as in `FlatTraces`; records of earlier versions do not say.
        provenance: Where the traces came from, if that is known; likewise.
    """

    users: int
    arrays: dict[InsidePath, int]
    apps: tuple[str, ...]
    categories: tuple[str, ...]
    table: str
    table_sha256: Sha256
    trace_set_sha256: Sha256 | None = None
    time_zones: tuple[str, ...] | None = None
    provenance: Provenance | None = None


class FolderSink:
    """Grows arrays as ``.npy`` files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, BinaryIO] = {}
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._header_bytes: dict[str, int] = {}
        self.lengths: dict[str, int] = {}

    def append(self, name: str, part: NDArray[Any]) -> None:
        """Add to the end of the file of an array."""
        if name not in self._files:
            self._files[name] = (self._folder / f"{name}.npy").open("xb")
            self._dtypes[name] = part.dtype
            self.lengths[name] = 0
            self._header_bytes[name] = self._write_header(name)
        # Not tofile(): its error on a full disk does not say that the disk is full.
        self._files[name].write(np.ascontiguousarray(part, self._dtypes[name]).data)
        self.lengths[name] += len(part)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Finish the files and map them."""
        for name, file in self._files.items():
            file.seek(0)
            if self._write_header(name) != self._header_bytes[name]:
                raise StorageError(
                    f"{self._folder / name}.npy: {self.lengths[name]} entries do not fit its header"
                )
            file.flush()
            os.fsync(file.fileno())
        self.close()
        return {name: mapped(self._folder / f"{name}.npy") for name in self.lengths}

    def close(self) -> None:
        """Close the files as they are."""
        for file in self._files.values():
            file.close()

    def _write_header(self, name: str) -> int:
        # numpy pads the header so that the first axis can grow; the header is written again at the end.
        header = {
            "descr": npy.dtype_to_descr(self._dtypes[name]),
            "fortran_order": False,
            "shape": (self.lengths[name],),
        }
        npy.write_array_header_1_0(self._files[name], header)
        return self._files[name].tell()


def mapped(path: Path) -> NDArray[Any]:
    """An array of a file, read-only, its pages loaded when they are used."""
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise _unfit(path, f"not readable as an array ({error})") from error


def _unfit(path: Path, problem: str) -> StorageError:
    return StorageError(f"{path}: {problem}", hint="make the flat form again")


def write_flat(
    traces: Iterable[InteractionTrace],
    out: Path,
    *,
    table: IntensityTable | None = None,
    trace_set_sha256: str | None = None,
    provenance: Provenance | None = None,
) -> FlatTraces:
    """Bring traces into the flat form in a new folder and open it.

    Raises:
        DataQualityError: A trace has errors.
        StorageError: The folder exists already or cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = table or default_table()
    with new_folder(out) as folder:
        sink = FolderSink(folder)
        try:
            flat = flatten(traces, table, sink)
            pq.write_table(pa.table({"user": list(flat.users)}), folder / USERS_FILE)
        except OSError as error:
            raise storage_error(out, error) from error
        finally:
            sink.close()
        record = FlatRecord(
            users=len(flat),
            arrays=sink.lengths,
            apps=flat.apps,
            categories=flat.categories,
            table=table.name,
            table_sha256=table.sha256(),
            trace_set_sha256=trace_set_sha256,
            time_zones=flat.time_zones,
            provenance=provenance,
        )
        write_record(folder / FLAT_FILE, record)
    return open_flat(out)


def open_flat(folder: Path) -> FlatTraces:
    """Open a folder that `write_flat` made; nothing is read into memory yet.

    Raises:
        StorageError: Something is missing, cut short or not what the record says.
    """
    check_folder(folder)
    record = read_record(folder / FLAT_FILE, FlatRecord)
    if record.arrays.keys() != DTYPES.keys():
        raise _unfit(folder / FLAT_FILE, f"names other arrays: {min(record.arrays.keys() ^ DTYPES.keys())}")
    arrays = {name: mapped(folder / f"{name}.npy") for name in DTYPES}
    for name, length in record.arrays.items():
        if arrays[name].shape != (length,):
            found = arrays[name].shape
            raise _unfit(folder / f"{name}.npy", f"{found} entries, the record says {length}")
        if arrays[name].dtype != DTYPES[name]:
            raise _unfit(folder / f"{name}.npy", f"holds {arrays[name].dtype}, not {DTYPES[name]}")
    _check_lengths(folder, arrays, record.users)
    users = _users(folder / USERS_FILE)
    if len(users) != record.users:
        raise _unfit(folder / USERS_FILE, f"{len(users)} users, the record says {record.users}")
    return from_arrays(arrays, users, record.apps, record.categories, time_zones=record.time_zones)


def _check_lengths(folder: Path, arrays: dict[str, NDArray[Any]], users: int) -> None:
    """Whether the arrays fit each other, by those that are short: the long ones stay on disk."""
    lengths = {"start_ns": users, "span_ns": users}
    for group, values in VALUE_ARRAYS.items():
        offset, bucket = arrays[f"{group}.offset"], arrays[f"{group}.bucket"]
        for name, total in ((f"{group}.offset", offset), (f"{group}.bucket", bucket)):
            if len(total) != users + 1 or total[0] != 0 or (np.diff(total) < 0).any():
                raise _unfit(folder / f"{name}.npy", f"does not say where {users} users begin")
        lengths |= {f"{group}.shift": users, f"{group}.in_force": int(bucket[-1])}
        lengths |= dict.fromkeys((f"{group}.t_ns", *values), int(offset[-1]))
    for name, length in lengths.items():
        if len(arrays[name]) != length:
            raise _unfit(folder / f"{name}.npy", f"{len(arrays[name])} entries, {length} are needed")


@dataclass(frozen=True, slots=True, eq=False)
class RecordedFacts:
    """A set in the flat form, with where it came from.

    Attributes:
        flat: Its traces.
        provenance: Where they come from; ``None`` for a flat form of an earlier version, which does not say.
        sha256: Of the set's manifest, or of the model that they were generated from.
    """

    flat: FlatTraces
    provenance: Provenance | None
    sha256: str | None

    @property
    def origin(self) -> str:
        """For people."""
        return "unknown" if self.provenance is None else self.provenance.origin.value


def open_recorded(folder: Path) -> RecordedFacts:
    """A trace set, or its flat form, whichever a folder holds.

    Raises:
        DataQualityError: A trace has errors.
        StorageError: It is neither.
    """
    if (folder / FLAT_FILE).is_file():
        made = read_record(folder / FLAT_FILE, FlatRecord)
        return RecordedFacts(open_flat(folder), made.provenance, made.trace_set_sha256)
    traces = TraceSet(folder)
    return RecordedFacts(flatten(traces), traces.record.provenance, traces.record.sha256())


def _users(path: Path) -> tuple[str, ...]:
    import pyarrow as pa

    columns = Columns(pa.schema([("user", pa.string())]))
    try:
        return tuple(name for batch in iter_batches(path, columns) for name in batch["user"].to_pylist())
    except OSError as error:
        raise _unfit(path, f"not readable ({error})") from error
