"""A folder that appears complete or not at all."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from joulefleet.errors import StorageError
from joulefleet.records import fsync_directory, storage_error


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Write into a hidden folder beside ``path``; it gets its name when everything went well.

    Raises:
        StorageError: The folder exists already (nothing is overwritten) or cannot be written.
    """
    path = path.resolve()
    if path.exists():
        raise StorageError(f"{path}: exists already, not overwritten", hint="choose another folder")
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        hidden.mkdir(parents=True)
    except OSError as error:
        raise storage_error(path, error) from error
    try:
        yield hidden
        fsync_directory(hidden)
        hidden.rename(path)
        fsync_directory(path.parent)
    except OSError as error:
        raise storage_error(path, error) from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
