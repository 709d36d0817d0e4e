"""Stored records: JSON with a schema version, canonical bytes and content hashes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import model_validator

from joulefleet.budgets import RECORD_BYTES, parse_json, read_bounded
from joulefleet.config import ClosedModel, validate
from joulefleet.errors import StorageError
from joulefleet.files import write_atomic

R = TypeVar("R", bound="StoredRecord")


class StoredRecord(ClosedModel):
    """Base of every JSON record on disk; subclasses raise ``SCHEMA_VERSION`` when their shape changes."""

    SCHEMA_VERSION: ClassVar[int] = 1

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
        return hashlib.sha256(canonical_json(hashed_content(self))).hexdigest()


def hashed_content(model: ClosedModel) -> Any:
    """A model as plain data without fields that joined later and are as before (`ClosedModel.LATER`)."""
    return _hashed(model, model.model_dump(mode="json"))


def _hashed(value: object, dumped: Any) -> Any:
    """A dumped value, likewise; models inside it too."""
    if isinstance(value, ClosedModel):
        return {
            name: _hashed(getattr(value, name), part)
            for name, part in dumped.items()
            if name not in value.LATER or getattr(value, name) != value.before(name)
        }
    if isinstance(value, list | tuple):
        return [_hashed(one, part) for one, part in zip(value, dumped, strict=True)]
    if isinstance(value, dict):
        pairs = zip(value.values(), dumped.items(), strict=True)
        return {name: _hashed(one, part) for one, (name, part) in pairs}
    return dumped


def canonical_json(data: object) -> bytes:
    """One byte string per value: sorted keys, no white space, no NaN."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def read_record(path: Path, model: type[R]) -> R:
    """Read and validate one JSON record."""
    return validate(read_json(path), model, name=str(path))


def read_json(path: Path) -> Any:
    """Read JSON, naming the file in every error."""
    if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe would be waited for without end
        raise StorageError(f"{path}: is no plain file")
    try:
        return parse_json(read_bounded(path, RECORD_BYTES))
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:  # also UnicodeDecodeError
        raise StorageError(
            f"{path}: not readable as JSON ({error})",
            hint="`joulefleet runs salvage RUN` recovers what a killed run had written",
        ) from error


def write_record(path: Path, record: StoredRecord, *, replace: bool = False) -> None:
    """Write a record atomically; refuse to overwrite unless ``replace``."""
    write_atomic(path, record.to_json().encode(), replace=replace)
