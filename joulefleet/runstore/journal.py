"""Journals: one JSON record per line, appended whole; a torn last line is left out when reading."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from joulefleet.budgets import JOURNAL_LINE_BYTES, RECORD_BYTES, parse_json
from joulefleet.errors import StorageError
from joulefleet.files import storage_error
from joulefleet.records import canonical_json
from joulefleet.runstore.folder import open_plain, read_plain


class AppendOnlyFile:
    """A file that only grows: what is appended is there whole, or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = open_plain(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            raise storage_error(path, error) from error

    def sync(self) -> None:
        """Make everything appended so far survive a power cut."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise storage_error(self.path, error) from error

    def _write(self, data: Any, *, sync: bool = False) -> None:
        view = memoryview(data).cast("B")
        try:
            size = os.fstat(self._fd).st_size
            try:
                while view:
                    view = view[os.write(self._fd, view) :]
                if sync:
                    os.fsync(self._fd)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, size)
                raise
        except OSError as error:
            raise storage_error(self.path, error) from error

    def abandon(self) -> None:
        """Stop writing and leave the file as it is, readable."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1


class Journal(AppendOnlyFile):
    """Append-only JSON lines. Each ``append`` is one write, so a kill tears at most the last line."""

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, record: dict[str, Any]) -> None:
        """Append one record; either the whole line is there afterwards, or none of it."""
        self._write(canonical_json(record) + b"\n")

    def close(self) -> None:
        """Flush to disk and close."""
        self.abandon()


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a journal; an unfinished last line is left out, any other bad line is an error."""
    with read_plain(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(JOURNAL_LINE_BYTES), b""), start=1):
            if file.tell() > RECORD_BYTES:
                raise StorageError(f"{path}:{number}: more than {RECORD_BYTES >> 20} MB of records")
            if not line.endswith(b"\n"):
                if len(line) == JOURNAL_LINE_BYTES:
                    limit = JOURNAL_LINE_BYTES >> 20
                    raise StorageError(f"{path}:{number}: a line of {limit} MB or more")
                return
            try:
                record = parse_json(line)
            except ValueError as error:
                raise StorageError(f"{path}:{number}: not JSON ({error})") from error
            if not isinstance(record, dict):
                raise StorageError(f"{path}:{number}: not a JSON object")
            yield record


def cut_torn_line(path: Path) -> int:
    """Cut an unfinished last line off, keeping its bytes in ``<name>.torn``. Returns the bytes cut."""
    with os.fdopen(open_plain(path, os.O_RDWR), "rb+") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:  # which cannot be mapped
            return 0
        if size > RECORD_BYTES:
            raise StorageError(f"{path}: more than {RECORD_BYTES >> 20} MB of records")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as lines:
            whole = lines.rfind(b"\n") + 1
            torn = lines[whole:]
        if not torn:
            return 0
        kept = path.with_name(path.name + ".torn")
        kept.unlink(missing_ok=True)  # whatever it is or leads to
        kept.write_bytes(torn)
        file.truncate(whole)
    return len(torn)
