"""What a job says to the host and hears from it."""

from __future__ import annotations

import queue
import time
from typing import TYPE_CHECKING, Any

from device_agents.payload.faults import LinkLost
from device_agents.payload.link.blobs import Incoming
from device_agents.payload.link.streams import LATE, LOST
from device_agents.payload.link.wire import TRANSFER_TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

    from device_agents.payload.context import AgentContext
    from device_agents.payload.job import BlobSpec


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
