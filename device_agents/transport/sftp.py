"""Files over SFTP: verified, resumable, atomic."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING

from fedjoule.errors import DeviceError

if TYPE_CHECKING:
    import paramiko

CHUNK_BYTES = 262_144


class SftpFiles:
    """One SFTP session. Relative paths are relative to the login folder."""

    def __init__(self, transport: paramiko.Transport, address: str) -> None:
        import paramiko

        client = paramiko.SFTPClient.from_transport(transport)
        if client is None:
            raise DeviceError(f"{address}: the server offers no SFTP", hint="enable its sftp subsystem")
        self._sftp = client
        self._address = address

    def upload(self, data: bytes, path: str, sha256: str, on_progress: Callable[[int], None]) -> int:
        """See `device_agents.transport.base.Transport.upload`."""
        if hashlib.sha256(data).hexdigest() != sha256:
            raise DeviceError(f"{path}: the content does not have the hash it was announced with")
        self._make_folders(posixpath.dirname(path))
        # Named by content, so that a part can only be continued with the bytes it began with.
        part = f"{path}.{sha256[:16]}.part"
        there = self._size(part)
        if there > len(data):
            self._sftp.remove(part)
            there = 0
        sent = self._append(part, data, there, on_progress)
        if self._hash(part, len(data)) != sha256:
            self._sftp.remove(part)
            raise DeviceError(
                f"{self._address}: {path} did not arrive whole",
                hint="try again; if it repeats, check its disk",
            )
        self._sftp.posix_rename(part, path)
        return sent

    def _append(self, part: str, data: bytes, start: int, on_progress: Callable[[int], None]) -> int:
        """Send the bytes from ``start`` on; a full disk is told apart from a broken link."""
        try:
            with self._sftp.open(part, "ab") as file:
                file.set_pipelined(True)
                for offset in range(start, len(data), CHUNK_BYTES):
                    file.write(data[offset : offset + CHUNK_BYTES])
                    on_progress(min(offset + CHUNK_BYTES, len(data)))
        except OSError as error:
            if error.errno is None and "Failure" in str(error):  # SFTP has no code of its own for a full disk
                raise DeviceError(
                    f"{self._address}: {part} cannot be written",
                    hint="is its disk full? the transfer can resume",
                ) from error
            raise
        return len(data) - start

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
        try:
            size = self._sftp.stat(path).st_size or 0
            if size > max_bytes:
                raise DeviceError(
                    f"{self._address}: {path} has {size} bytes, more than the {max_bytes} allowed"
                )
            with self._sftp.open(path, "rb") as file:
                data = file.read(max_bytes + 1)
        except FileNotFoundError as error:
            raise DeviceError(f"{self._address}: no file {path}") from error
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
