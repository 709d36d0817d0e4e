"""Files over SFTP: verified, resumable, atomic."""

from __future__ import annotations

import contextlib
import hashlib
import posixpath
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from device_agents.payload.link.wire import TRANSFER_TIMEOUT_S
from device_agents.transport.ssh_errors import bounded
from joulefleet.errors import DeviceError, DeviceFull

if TYPE_CHECKING:
    import paramiko

CHUNK_BYTES = 262_144


class SftpFiles:
    """One SFTP session. Relative paths are relative to the login folder.

    Every answer has a deadline, and so has every transfer: paramiko's time-out starts again with each byte.
    """

    def __init__(self, transport: paramiko.Transport, address: str, timeout_s: float) -> None:
        import paramiko

        channel = transport.open_session(timeout=timeout_s)
        try:
            with bounded(channel, timeout_s):
                channel.invoke_subsystem("sftp")
        except paramiko.SSHException as error:
            if not transport.is_active():
                raise
            raise DeviceError(
                f"{address}: the server offers no SFTP", hint="enable its sftp subsystem"
            ) from error
        channel.settimeout(timeout_s)
        with bounded(channel, timeout_s):
            self._sftp = paramiko.SFTPClient(channel)
        self._channel = channel
        self._address = address

    def upload(self, data: bytes, path: str, sha256: str, on_progress: Callable[[int], None]) -> int:
        """See `device_agents.transport.base.Transport.upload`."""
        if hashlib.sha256(data).hexdigest() != sha256:
            raise DeviceError(f"{path}: the content does not have the hash it was announced with")
        with bounded(self._channel, TRANSFER_TIMEOUT_S), self._refusals(path):
            return self._upload(data, path, sha256, on_progress)

    @contextlib.contextmanager
    def _refusals(self, path: str) -> Iterator[None]:
        """The server's answer is no sign of a broken link, which OSError is otherwise."""
        try:
            yield
        except FileNotFoundError as error:
            raise DeviceError(f"{self._address}: no file {path}") from error
        except PermissionError as error:
            raise DeviceError(
                f"{self._address}: {path}: permission denied", hint="is the folder that user's own?"
            ) from error
        except OSError as error:
            if not _is_failure(error):
                raise
            raise DeviceError(
                f"{self._address}: {path} was refused",
                hint="is a file in the way of a folder, or the disk full?",
            ) from error

    def _upload(self, data: bytes, path: str, sha256: str, on_progress: Callable[[int], None]) -> int:
        self._make_folders(posixpath.dirname(path))
        # Named by content, so that a part can only be continued with the bytes it began with.
        part = f"{path}.{sha256[:16]}.part"
        there = self._size(part)
        if there > len(data):
            self._sftp.remove(part)
            there = 0
        self._append(part, data, there, on_progress)
        if self._hash(part, len(data)) != sha256:
            self._sftp.remove(part)
            raise DeviceError(
                f"{self._address}: {path} did not arrive whole",
                hint="try again; if it repeats, check its disk",
            )
        self._sftp.posix_rename(part, path)
        return len(data) - there

    def _append(self, part: str, data: bytes, start: int, on_progress: Callable[[int], None]) -> None:
        """Send the bytes from ``start`` on; a full disk is told apart from a broken link.

        Writes are not waited for one by one, and paramiko drops what the server says of the last hundred. A
        refused one shows in the size; what came after it may have been written, so the part is of no use.
        """
        refused = False
        try:
            with self._sftp.open(part, "ab") as file:
                file.set_pipelined(True)
                for offset in range(start, len(data), CHUNK_BYTES):
                    file.write(data[offset : offset + CHUNK_BYTES])
                    on_progress(min(offset + CHUNK_BYTES, len(data)))
                self._sync(file)
        except OSError as error:
            refused = _is_failure(error)  # of a write to an open file there is hardly another reason
            if not refused:
                raise
        if refused or self._size(part) < len(data):
            self._sftp.remove(part)
            raise DeviceFull(
                f"{self._address}: {part} cannot be written: no space left on the device",
                hint="free some space there and try again",
            )

    def _sync(self, file: paramiko.SFTPFile) -> None:
        """Onto the disk before it gets its name: else a power cut may leave the name with nothing behind it.

        An extension of OpenSSH that paramiko has no method for. Servers may not know or allow it: the file is
        whole all the same.
        """
        from paramiko.sftp import CMD_EXTENDED

        try:
            self._sftp._request(CMD_EXTENDED, "fsync@openssh.com", file.handle)  # type: ignore[attr-defined]
        except TimeoutError:  # no answer is none of the server's answers
            raise
        except OSError:
            return

    def _hash(self, path: str, size: int) -> str:
        """Read back what is there: the only check that does not trust the device's own tools."""
        digest = hashlib.sha256()
        with self._sftp.open(path, "rb") as file:
            file.prefetch(size)
            while block := file.read(CHUNK_BYTES):
                digest.update(block)
        return digest.hexdigest()

    def download(self, path: str, max_bytes: int) -> bytes:
        """See `device_agents.transport.base.Transport.download`."""
        with bounded(self._channel, TRANSFER_TIMEOUT_S), self._refusals(path):
            size = self._sftp.stat(path).st_size or 0
            if size > max_bytes:
                raise DeviceError(
                    f"{self._address}: {path} has {size} bytes, more than the {max_bytes} allowed"
                )
            with self._sftp.open(path, "rb") as file:
                data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise DeviceError(f"{self._address}: {path} grew beyond the {max_bytes} bytes allowed")
        return data

    def _size(self, path: str) -> int:
        try:
            return self._sftp.stat(path).st_size or 0
        except FileNotFoundError:
            return 0

    def _make_folders(self, folder: str) -> None:
        if not folder or folder == "/":
            return
        try:
            self._sftp.stat(folder)
        except FileNotFoundError:
            self._make_folders(posixpath.dirname(folder))
            self._sftp.mkdir(folder, 0o700)


def _is_failure(error: OSError) -> bool:
    """SFTP version 3's word for everything that has no code of its own, such as a full disk."""
    return error.errno is None and "Failure" in str(error)
