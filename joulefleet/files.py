"""Files and folders that appear whole: atomic writes; a killed process leaves nothing that stays."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from joulefleet.budgets import HASHED_BYTES
from joulefleet.errors import StorageError, StorageFull

_HIDDEN = ".joulefleet.tmp"
"""How the names of folders end that are being written."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def file_sha256(path: Path) -> str:
    """Hash of a file's bytes, read in bounded memory.

    Raises:
        StorageError: There are more of them than anything has that is hashed.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > HASHED_BYTES:
            raise StorageError(f"{path}: more than {HASHED_BYTES >> 30} GB")
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomic(path: Path, data: bytes, *, replace: bool = False, mode: int = 0o644) -> None:
    """Write bytes so that a reader sees the old file, the new file, or none: fsync, then rename.

    What an earlier writer of the same file left when it was killed is removed.

    Args:
        path: The file.
        data: Its bytes.
        replace: Whether it may be there already.
        mode: Who may read it.

    Raises:
        StorageError: The file exists and ``replace`` is false, or the disk refused.
    """
    with new_file(path, replace=replace, mode=mode) as file:
        file.write(data)


@contextlib.contextmanager
def new_file(path: Path, *, replace: bool = False, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """As `write_atomic`, for what is too large to be held: the file gets its name when all went well."""
    try:
        _clear_leftovers(path.parent, f".{path.name}.", ".tmp")
        if path.exists() and not replace:
            raise FileExistsError
        temporary, handle = _claimed_file(path)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                temporary.chmod(mode)
                publish(temporary, path, replace=replace)  # before its lock goes with the handle
        finally:
            temporary.unlink(missing_ok=True)
    except FileExistsError as error:
        raise StorageError(f"{path}: exists already, not overwritten") from error
    except OSError as error:
        raise storage_error(path, error) from error
    except Exception as error:
        full = _full_disk_behind(error)
        if full is None:
            raise
        raise storage_error(path, full) from error


def _full_disk_behind(error: BaseException | None) -> OSError | None:
    """The full disk that made a library fail: its own cleaning up may fail too, and hide why."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            return error
        error = error.__context__
    return None


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
    if error.errno in FULL:
        return StorageFull(
            f"{path}: no space left ({error.strerror})",
            hint="free some space, then `joulefleet runs salvage RUN` recovers everything written before",
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StorageError(
            f"{path}: cannot be written ({error.strerror})", hint="choose a writable directory with --out"
        )
    in_the_way = next((one for one in path.parents if one.exists()), None)
    if in_the_way is not None and not in_the_way.is_dir():
        return StorageError(f"{path}: {in_the_way} is a file, not a folder", hint="choose another path")
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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear_leftovers(path.parent, ".", _HIDDEN)
        hidden, lock = _claimed_folder(path.parent, f".{path.name[:128]}.")
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
        os.close(lock)


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for what is needed for a while; those of killed processes of ours are removed first."""
    root = Path(tempfile.gettempdir())
    _clear_leftovers(root, "joulefleet.", _HIDDEN)
    try:
        folder, lock = _claimed_folder(root, "joulefleet.", mode=0o700)
    except OSError as error:
        raise storage_error(root, error) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _claimed_folder(parent: Path, prefix: str, mode: int = 0o777) -> tuple[Path, int]:
    """A new folder, and a lock on it that the kernel frees when this process ends, however it ends."""
    while True:
        folder = parent / f"{prefix}{secrets.token_hex(4)}{_HIDDEN}"
        folder.mkdir(mode=mode)
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # another process took it for a leftover in the moment before
            continue
        if _claim(lock) is not False and folder.exists():
            return folder, lock
        os.close(lock)


def _claimed_file(path: Path) -> tuple[Path, int]:
    """A new file beside ``path``, open for writing and locked: see `_claimed_folder`."""
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        if _claim(handle) is not False and Path(name).exists():
            return Path(name), handle
        os.close(handle)


def _claim(handle: int) -> bool | None:
    """Lock a file or folder; False if somebody else holds it, None where there are no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems
        return None
    return True


def _clear_leftovers(parent: Path, prefix: str, suffix: str) -> None:
    """Remove what killed processes of this user left here; what a living one writes is locked by it."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if not (entry.name.startswith(prefix) and entry.name.endswith(suffix)) or entry.is_symlink():
                continue
            with contextlib.suppress(OSError):
                _remove_if_left(entry)


def _remove_if_left(entry: os.DirEntry[str]) -> None:
    is_folder = entry.is_dir(follow_symlinks=False)
    is_file = entry.is_file(follow_symlinks=False)
    if not (is_folder or is_file) or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
        return
    handle = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        if _claim(handle) is not True:
            return
        if is_folder:
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            Path(entry.path).unlink(missing_ok=True)
    finally:
        os.close(handle)


def cache_folder(*, make: bool = True) -> Path:
    """Where things are kept between runs: the user's cache, or a place that can be written without a home.

    Without ``make`` it may not be there.
    """
    named = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(OSError, RuntimeError):  # no home, or one that is read-only
        folder = (Path(named) if named else Path.home() / ".cache") / "joulefleet"
        if not make:
            return folder
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    folder = Path(tempfile.gettempdir()) / f"joulefleet-{os.geteuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700)
    if folder.is_symlink() or not folder.is_dir() or folder.stat().st_uid != os.geteuid():
        raise StorageError(
            f"{folder}: is not a folder of this user", hint="name a folder for caches in XDG_CACHE_HOME"
        )
    return folder
