"""Checkpoints: nested plain data with arrays. No pickle.

The file is a numpy archive: ``tree`` holds JSON in which every array is a reference to another entry. A
record beside it names the file that counts and its hash, and is replaced at once: whoever reads sees the old
checkpoint or the new one, and never goes on from a damaged one.
"""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulefleet.budgets import npz_arrays, parse_json
from joulefleet.errors import ConfigError, StorageError
from joulefleet.files import file_sha256, write_atomic
from joulefleet.provenance import Sha256
from joulefleet.records import StoredRecord, read_record, write_record
from joulefleet.runstore.folder import InsidePath

FOLDER = "checkpoint"
FILE = "checkpoint.json"
_ARRAY = "__array__"
_TUPLE = "__tuple__"
_ITEMS = "__items__"


class CheckpointRecord(StoredRecord):
    """Which file holds the state, and its hash."""

    file: InsidePath
    state_sha256: Sha256


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Replace the checkpoint of a run; a reader sees the old one or the new one."""
    arrays: dict[str, NDArray[Any]] = {}
    tree = json.dumps(_plain(state, arrays)).encode()
    file = io.BytesIO()
    np.savez(file, tree=np.frombuffer(tree, np.uint8), **arrays)  # type: ignore[arg-type]
    target = folder / FOLDER
    target.mkdir(exist_ok=True)
    data = file.getvalue()
    sha256 = hashlib.sha256(data).hexdigest()
    name = f"state-{sha256[:16]}.npz"
    write_atomic(target / name, data, replace=True)
    write_record(target / FILE, CheckpointRecord(file=name, state_sha256=sha256), replace=True)
    for other in target.glob("state*.npz"):
        if other.name != name:
            other.unlink(missing_ok=True)


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The last checkpoint of a run, ``None`` if there is none yet."""
    record = folder / FOLDER / FILE
    if not record.exists():
        return None
    try:
        known = read_record(record, CheckpointRecord)
        path = record.with_name(known.file)
        if file_sha256(path) != known.state_sha256:
            raise ValueError("its bytes are not those that were stored")
        arrays = npz_arrays(path)
        state = _restored(parse_json(arrays.pop("tree").tobytes()), arrays)
        if not isinstance(state, dict):
            raise TypeError("no state")
    except (ConfigError, StorageError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        why = error.message if isinstance(error, ConfigError | StorageError) else str(error)
        raise StorageError(
            f"{record.parent}: not a whole checkpoint ({why})",
            hint="remove this folder: the emulation then begins again, the others of the run stay",
        ) from error
    return state


def forget_if_planned(folder: Path) -> None:
    """Before more rounds are played: drop a checkpoint that rests on how many there were to be.

    Some selectors plan by that number. Their run would have been another one from its first round on.
    """
    state = load_checkpoint(folder)
    if state is not None and state.get("planned_by_rounds", True):  # what does not say may
        (folder / FOLDER / FILE).unlink()


def _plain(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """JSON for a value, its arrays put aside."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError("a checkpoint holds numbers and strings, not Python objects")
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {_ARRAY: name}
    if isinstance(value, dict):
        # As pairs: JSON would turn the keys into strings.
        return {_ITEMS: [[_plain(k, arrays), _plain(v, arrays)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {_TUPLE: [_plain(item, arrays) for item in value]}
    if isinstance(value, list):
        return [_plain(item, arrays) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item(), arrays)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a checkpoint cannot hold {type(value).__name__}")


def _restored(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    if isinstance(value, list):
        return [_restored(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if _ARRAY in value:
        return arrays[value[_ARRAY]]
    if _TUPLE in value:
        return tuple(_restored(item, arrays) for item in value[_TUPLE])
    return {_restored(k, arrays): _restored(v, arrays) for k, v in value[_ITEMS]}
