"""The journal on the device: one JSON record per line, each appended by one write.

What has been appended survives the death of the agent, however sudden, because the kernel has it. It survives
a power cut from the next `JobJournal.sync` on; that is called where it cannot disturb a measured phase.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from typing import TYPE_CHECKING, Any

from device_agents.payload.faults import JobFault, storage_fault
from device_agents.payload.link.wire import MAX_JOURNAL_BYTES, encode

if TYPE_CHECKING:
    from pathlib import Path


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
