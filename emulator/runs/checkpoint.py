"""Checkpoints: nested plain data with arrays, in one file that is replaced at once. No pickle.

The file is a numpy archive: ``tree`` holds JSON in which every array is a reference to another entry.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulefleet.errors import StorageError
from joulefleet.records import write_atomic

FOLDER = "checkpoint"
FILE = "state.npz"
_ARRAY = "__array__"
_TUPLE = "__tuple__"
_ITEMS = "__items__"


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Replace the checkpoint of a run; a reader sees the old one or the new one."""
    arrays: dict[str, NDArray[Any]] = {}
    tree = json.dumps(_plain(state, arrays)).encode()
    file = io.BytesIO()
    np.savez(file, tree=np.frombuffer(tree, np.uint8), **arrays)  # type: ignore[arg-type]
    target = folder / FOLDER
    target.mkdir(exist_ok=True)
    write_atomic(target / FILE, file.getvalue(), replace=True)


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The last checkpoint of a run, ``None`` if there is none yet."""
    path = folder / FOLDER / FILE
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = dict(stored)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise StorageError(f"{path}: not a checkpoint ({error})", hint="start the run again") from error
    state: dict[str, Any] = _restored(json.loads(arrays.pop("tree").tobytes()), arrays)
    return state


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
