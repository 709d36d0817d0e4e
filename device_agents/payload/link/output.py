"""Standard output is reserved for the protocol: whatever else is printed goes to ``agent.log`` and stderr.

File descriptors 1 and 2 point at the log, so that native libraries and child processes are caught as well.
What has gathered there is copied to the real standard error when that cannot disturb a measurement.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MAX_LOG_BYTES = 1 << 20
"""A log that has grown beyond this is begun anew when the agent starts."""


class AgentOutput:
    """Holds the real standard output and error.

    Attributes:
        protocol_fd: The real standard output.
    """

    def __init__(self, log: Path) -> None:
        self.protocol_fd = os.dup(1)
        self._stderr_fd = os.dup(2)
        with contextlib.suppress(OSError):
            if log.stat().st_size > MAX_LOG_BYTES:
                log.unlink()
        self.redirect(log)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    def redirect(self, log: Path) -> None:
        """Everything printed from here on goes to ``log``."""
        sys.stdout.flush()
        fd = os.open(log, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._relayed_bytes = os.fstat(fd).st_size
            os.dup2(fd, 1)
            os.dup2(fd, 2)
        finally:
            os.close(fd)

    def relay(self) -> None:
        """Copy what was printed since the last call to the real standard error, without ever blocking."""
        sys.stdout.flush()
        while select.select([], [self._stderr_fd], [], 0)[1]:
            try:
                # A pipe that select calls writable takes this much at once (PIPE_BUF, at least 512 by POSIX).
                data = os.pread(2, 512, self._relayed_bytes)
                count = os.write(self._stderr_fd, data)
            except OSError:
                return
            if not data:
                return
            self._relayed_bytes += count
