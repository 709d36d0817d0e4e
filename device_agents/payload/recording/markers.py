"""Phase markers: stamped on the device's monotonic clock first, journalled second, sent third."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from device_agents.payload.faults import JobFault
from device_agents.payload.link.streams import SEND_TIMEOUT_S

if TYPE_CHECKING:
    from device_agents.payload.link.streams import Sender
    from device_agents.payload.recording.journal import JobJournal


class Markers:
    """Stamps the markers of one job.

    Attributes:
        phase: The phase that is open now, empty between phases.
        epoch: Its epoch.
        cpu_s: Processor time spent here, which is not training.
    """

    def __init__(self, journal: JobJournal, sender: Sender) -> None:
        self._journal = journal
        self._sender = sender
        self._seq = 0
        self.phase = ""
        self.epoch = 0
        self.cpu_s = 0.0

    def start(self, kind: str, epoch: int = 0, **extra: Any) -> int:
        """A phase begins. Returns its device time in nanoseconds."""
        t_dev_ns = self._stamp(kind, "start", epoch, extra)
        self.phase, self.epoch = kind, epoch
        return t_dev_ns

    def end(self, kind: str, epoch: int = 0, **extra: Any) -> int:
        """A phase ends. Returns its device time in nanoseconds."""
        t_dev_ns = self._stamp(kind, "end", epoch, extra)
        self.phase, self.epoch = "", 0
        return t_dev_ns

    def _stamp(self, kind: str, edge: str, epoch: int, extra: dict[str, Any]) -> int:
        t_dev_ns = time.monotonic_ns()
        began_s = time.thread_time()
        marker = {"kind": kind, "edge": edge, "epoch": epoch, "t_dev_ns": t_dev_ns, "seq": self._seq}
        message = {"type": "marker", "marker": {**marker, "extra": extra} if extra else marker}
        self._seq += 1
        try:
            self._journal.append(message)
        except JobFault:
            self._sender.quiet = False  # the journal is full: the link is the only place left
            self._sender.offer(message, wait_s=SEND_TIMEOUT_S)
            raise
        self._sender.offer(message, wait_s=SEND_TIMEOUT_S)
        self.cpu_s += time.thread_time() - began_s
        return t_dev_ns
