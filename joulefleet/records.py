"""Stored records: JSON with a schema version, canonical bytes, content hashes and atomic writes."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import model_validator

from joulefleet.config import ClosedModel, validate
from joulefleet.errors import StorageError, StorageFull

R = TypeVar("R", bound="StoredRecord")


class StoredRecord(ClosedModel):
    """Base of every JSON record on disk; subclasses raise ``SCHEMA_VERSION`` when their shape changes."""

    SCHEMA_VERSION: ClassVar[int] = 1
    LATER: ClassVar[frozenset[str]] = frozenset()
    """Optional fields that joined without a new version. One that is None is not part of the hash, so that
    what was written before it existed keeps its hash."""

    schema_version: int = 1

    @model_validator(mode="before")
    @classmethod
    def _check_version(cls, data: Any) -> Any:
        if isinstance(data, dict):
            found = data.setdefault("schema_version", cls.SCHEMA_VERSION)
            if found != cls.SCHEMA_VERSION:
                raise ValueError(
                    f"schema_version {found!r}, this joulefleet reads {cls.SCHEMA_VERSION} of {cls.__name__}"
                )
        return data

    def to_json(self) -> str:
        """Readable JSON; ``schema_version`` first."""
        data = self.model_dump(mode="json")
        return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def sha256(self) -> str:
        """Hash of the content, independent of key order and white space."""
        absent = {name for name in self.LATER if getattr(self, name) is None}
        return hashlib.sha256(canonical_json(self.model_dump(mode="json", exclude=absent))).hexdigest()


def canonical_json(data: object) -> bytes:
    """One byte string per value: sorted keys, no white space, no NaN."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def file_sha256(path: Path) -> str:
    """Hash of a file's bytes, read in bounded memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_record(path: Path, model: type[R]) -> R:
    """Read and validate one JSON record."""
    return validate(read_json(path), model, name=str(path))


def read_json(path: Path) -> Any:
    """Read JSON, naming the file in every error."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:  # also UnicodeDecodeError
        raise StorageError(
            f"{path}: not readable as JSON ({error})", hint="try `joulefleet runs salvage`"
        ) from error


def write_record(path: Path, record: StoredRecord, *, replace: bool = False) -> None:
    """Write a record atomically; refuse to overwrite unless ``replace``."""
    write_atomic(path, record.to_json().encode(), replace=replace)


def write_atomic(path: Path, data: bytes, *, replace: bool = False) -> None:
    """Write bytes so that a reader sees the old file, the new file, or none: fsync, then rename.

    Raises:
        StorageError: The file exists and ``replace`` is false, or the disk refused.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            publish(temporary, path, replace=replace)
        finally:
            temporary.unlink(missing_ok=True)
    except FileExistsError as error:
        raise StorageError(f"{path}: exists already, not overwritten") from error
    except OSError as error:
        raise storage_error(path, error) from error


def publish(temporary: Path, path: Path, *, replace: bool) -> None:
    """Give a finished temporary file its name, durably."""
    if replace:
        temporary.replace(path)
    else:
        os.link(temporary, path)  # fails if the name is taken; rename would overwrite silently
        temporary.unlink()
    fsync_directory(path.parent)


def fsync_directory(path: Path) -> None:
    """Make a rename inside ``path`` survive a power cut."""
    # Some network file systems refuse fsync on a directory; the rename itself has happened.
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def storage_error(path: Path, error: OSError) -> StorageError:
    """The operating system's refusal as an error that says what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageFull(
            f"{path}: no space left ({error.strerror})",
            hint="free some space, then `joulefleet runs salvage` recovers everything written before",
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StorageError(
            f"{path}: cannot be written ({error.strerror})", hint="choose a writable directory with --out"
        )
    return StorageError(f"{path}: {error.strerror or error}")


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
