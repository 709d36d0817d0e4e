"""The journal on the device: one JSON record per line, each appended by one write, markers among them.

What has been appended survives the death of the agent, however sudden, because the kernel has it. It survives
a power cut from the next `JobJournal.sync` on; that is called where it cannot disturb a measured phase.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from device_agents.payload.faults import JobFault, storage_fault
from device_agents.payload.link.streams import SEND_TIMEOUT_S
from device_agents.payload.link.wire import MAX_JOURNAL_BYTES, encode

if TYPE_CHECKING:
    from pathlib import Path

    from device_agents.payload.link.streams import Sender


class JobJournal:
    """Append-only JSON lines, safe to share between threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def append(self, record: dict[str, Any]) -> None:
        """Append one record: the whole line is there afterwards, or none of it.

        Raises:
            JobFault: ``storage_full``, or the journal is closed.
        """
        line = encode(record)
        with self._lock:
            if self._fd < 0:
                raise JobFault("storage", f"{self._path.name} is closed")
            size = os.fstat(self._fd).st_size
            if size + len(line) > MAX_JOURNAL_BYTES:
                raise JobFault("storage_full", f"{self._path.name} has reached {MAX_JOURNAL_BYTES} bytes")
            try:
                written = os.write(self._fd, line)
                if written != len(line):  # the kernel wrote what still fitted
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, size)
                raise storage_fault(self._path, error) from error

    def sync(self) -> None:
        """Make everything appended so far survive a power cut."""
        with contextlib.suppress(OSError):  # some file systems refuse; the lines are written all the same
            os.fsync(self._fd)

    def close(self) -> None:
        """Flush and close."""
        self.sync()
        with self._lock:
            fd, self._fd = self._fd, -1  # another thread must not write to whatever gets this number next
            os.close(fd)


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
