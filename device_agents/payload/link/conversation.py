"""What a job says to the host and hears from it.

Blobs are received under a temporary name, checked against their hash, then put in place.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import time
from typing import TYPE_CHECKING, Any

from device_agents.payload.faults import JobFault, LinkLost, storage_fault
from device_agents.payload.link.streams import LATE, LOST
from device_agents.payload.link.wire import TRANSFER_TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

    from device_agents.payload.context import AgentContext
    from device_agents.payload.job import BlobSpec


class Incoming:
    """A blob on its way in; see `device_agents.payload.link.streams.Sink`."""

    def __init__(self, target: Path, ref: BlobSpec) -> None:
        self._target = target
        self._ref = ref
        self._part = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            self._file = self._part.open("wb")
        except OSError as error:
            raise storage_fault(target, error) from error

    def write(self, data: bytes, /) -> int:
        """Take the next bytes; drop them if nobody waits for them any more."""
        with contextlib.suppress(ValueError):  # closed by `discard` while they were under way
            return self._file.write(data)
        return 0

    def keep(self, header: dict[str, Any]) -> None:
        """Give the blob its name if it is what was asked for.

        Raises:
            JobFault: The disk is full, or other bytes arrived than were announced.
        """
        try:
            failure = header["failure"]
            if failure is not None:
                raise storage_fault(self._target, failure)
            if header["size"] != self._ref.size or header["received_sha256"] != self._ref.sha256:
                raise JobFault("bad_data", f"{self._target.name}: other bytes arrived than were announced")
            try:
                self._file.close()
            except OSError as error:
                raise storage_fault(self._target, error) from error
            self._part.replace(self._target)
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove what has arrived, unless it has been kept."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._part.unlink(missing_ok=True)


def cached(path: Path, ref: BlobSpec) -> bool:
    """Whether the cache holds the blob, whole; a damaged copy is removed."""
    try:
        if path.stat().st_size == ref.size and file_sha256(path) == ref.sha256:
            return True
        path.unlink()
    except OSError:
        pass
    return False


def store(path: Path, data: bytes) -> dict[str, Any]:
    """Write a blob and return its size and hash.

    Raises:
        JobFault: The disk refuses.
    """
    try:
        path.write_bytes(data)
    except OSError as error:
        raise storage_fault(path, error) from error
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def file_sha256(path: Path) -> str:
    """Hash of a file, read in bounded memory."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while True:
            data = file.read(1 << 20)
            if not data:
                return digest.hexdigest()
            digest.update(data)


class Conversation:
    """Messages of one job."""

    def __init__(self, context: AgentContext, job_id: str) -> None:
        self._context = context
        self._job_id = job_id

    def say(self, message: dict[str, Any], block: bytes = b"") -> None:
        """Send a message of this job.

        Raises:
            LinkLost: The host is gone.
        """
        self._context.sender.send({**message, "job_id": self._job_id}, block)

    def hear(self, kind: str, timeout_s: float) -> dict[str, Any]:
        """The next message of a kind for this job; commands are answered with ``busy``.

        Raises:
            LinkLost: The host is gone, or says nothing for ``timeout_s``.
        """
        reader = self._context.reader
        until_s = time.monotonic() + timeout_s
        while True:
            try:
                message = self._context.interrupter.run(
                    lambda: reader.take(max(0.0, until_s - time.monotonic()))
                )
            except queue.Empty:
                raise LinkLost(f"no {kind} from the host for {timeout_s:g} s") from None
            if message is LOST:
                raise LinkLost("the host is gone")
            if message["type"] == kind and message.get("job_id") == self._job_id:
                return message
            if message["type"] not in LATE:
                busy = f"{message['type']!r:.80} while a job waits for {kind!r}"
                self.say({"type": "error", "code": "busy", "message": busy})

    def download(self, name: str, ref: BlobSpec, target: Path) -> None:
        """Ask the host for a blob and put it in place.

        Raises:
            LinkLost: The host is gone.
            JobFault: The disk is full, or other bytes arrived.
        """
        incoming = Incoming(target, ref)
        self._context.reader.direct(incoming)
        try:
            self.say({"type": "want", "name": name, "sha256": ref.sha256, "size": ref.size})
            incoming.keep(self.hear("blob", TRANSFER_TIMEOUT_S))
        finally:
            self._context.reader.direct(None)
            incoming.discard()

    def upload(self, name: str, ref: dict[str, Any], data: bytes) -> None:
        """Send a blob and wait until the host says that it has it.

        Raises:
            LinkLost: The host is gone.
        """
        self.say({"type": "blob", "name": name, **ref}, data)
        self.hear("got", TRANSFER_TIMEOUT_S)
