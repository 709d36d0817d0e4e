"""A pseudo-terminal that plays the serial port of an emulated instrument."""

from __future__ import annotations

import contextlib
import os
import select
import tty


class PtyPort:
    """The instrument's end of a pty.

    Writing never blocks: what the client did not take in time is lost, as on a real wire, and counted.

    Attributes:
        path: What a client opens, e.g. ``/dev/pts/3``.
        discarded_bytes: Bytes that did not fit because the client read too slowly.
    """

    def __init__(self) -> None:
        self._master, self._slave = os.openpty()
        # Raw mode: a terminal would echo our bytes and turn 0x0A into 0x0D 0x0A. Keeping our own slave
        # descriptor open lets clients come and go without a hang-up on the master.
        tty.setraw(self._slave)
        os.set_blocking(self._master, False)
        self.path = os.ttyname(self._slave)
        self.discarded_bytes = 0

    def write(self, data: bytes) -> None:
        """Send bytes; those that do not fit are discarded and counted."""
        try:
            written = os.write(self._master, data)
        except BlockingIOError:
            written = 0
        self.discarded_bytes += len(data) - written

    def read(self, timeout_s: float = 0.0) -> bytes:
        """Bytes from the client, or ``b""`` after the timeout."""
        ready, _, _ = select.select([self._master], [], [], timeout_s)
        if not ready:
            return b""
        try:
            return os.read(self._master, 4096)
        except OSError:
            return b""

    def close(self) -> None:
        """Pull the cable: the client's next read or write fails."""
        for name in ("_slave", "_master"):
            fd = getattr(self, name)
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
                setattr(self, name, -1)

    @property
    def is_open(self) -> bool:
        """Whether the cable is still in."""
        return self._master >= 0
