"""Folders that somebody else made: nothing in them may lead out, and nothing may block who opens it.

A run, a trace set or a recording may come from another lab. A link in it would have us read or overwrite a
file elsewhere; a named pipe in place of a file would hold a reader for ever. The folder itself may be a link:
that is the user's own. Whoever can change a folder while we work in it is the user, and is trusted.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO, Annotated

from pydantic import AfterValidator

from joulefleet.errors import StorageError
from joulefleet.files import storage_error

MAX_DEPTH = 32
"""Levels of folders. A run has six."""


def check_folder(root: Path) -> None:
    """Refuse a folder that holds anything but folders and plain files.

    Raises:
        StorageError: There is a link, a pipe, a socket or a device in it, or it is nested without end.
    """
    todo = [(root, 0)]
    while todo:
        folder, depth = todo.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        todo.append((Path(entry.path), depth + 1))
                    elif not entry.is_file(follow_symlinks=False):
                        raise _odd(root, Path(entry.path))
        except FileNotFoundError:
            continue  # a run that is being written: a temporary file was given its name meanwhile
        except OSError as error:
            raise storage_error(folder, error) from error
        if depth > MAX_DEPTH:
            raise StorageError(f"{root}: folders in it are more than {MAX_DEPTH} levels deep")


def _odd(root: Path, path: Path) -> StorageError:
    kind = "a link" if path.is_symlink() else "no file (a pipe, socket or device)"
    return StorageError(
        f"{root}: {path.relative_to(root)} is {kind}; a folder of ours holds plain files only",
        hint="if you trust what it leads to, put a copy in its place",
    )


def open_plain(path: Path, flags: int, mode: int = 0o644) -> int:
    """Open a file for writing, or make it; never through a link, nor one that has a second name.

    Raises:
        OSError: From the operating system.
        StorageError: It is a link or no plain file.
    """
    fd = _open_file(path, flags, mode)
    if os.fstat(fd).st_nlink == 1:
        return fd
    os.close(fd)
    raise StorageError(
        f"{path}: has another name elsewhere (a hard link), which writing would change too",
        hint="put a copy in its place",
    )


def _open_file(path: Path, flags: int, mode: int = 0o644) -> int:
    try:
        # Without O_NONBLOCK a named pipe would wait for its other end.
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if _is_odd(path):
            raise _odd(path.parent, path) from error
        raise
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise _odd(path.parent, path)


def read_plain(path: Path) -> IO[bytes]:
    """Open a file for reading; never through a link, and never what would be waited for.

    Raises:
        OSError: From the operating system.
        StorageError: It is a link or no plain file.
    """
    return os.fdopen(_open_file(path, os.O_RDONLY), "rb")


def _is_odd(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def plain_opener(mode: int = 0o644) -> Callable[[str, int], int]:
    """For Python's ``open(..., opener=)``."""
    return lambda name, flags: open_plain(Path(name), flags, mode)


def stays_inside(text: str) -> str:
    """The same path, if it is one below where it begins; ValueError if not."""
    path = PurePosixPath(text)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in text or text != str(path):
        raise ValueError("not a path below the folder")
    return text


InsidePath = Annotated[str, AfterValidator(stays_inside)]
"""A path in a stored record, relative to the record's folder; it does not leave it."""
