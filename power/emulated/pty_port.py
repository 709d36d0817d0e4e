"""A pseudo-terminal that plays the serial port of an emulated instrument."""

from __future__ import annotations

import contextlib
import os
import select
import time
import tty
from typing import Final

PATIENCE_MAX_S: Final = 1.0


class PtyPort:
    """The instrument's end of a pty.

    What the client does not take in time is lost, as on a real wire, and counted. Time is given for what an
    instrument would have sent bit by bit and an emulator on a busy machine sends at once.

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
        self._written_s = time.monotonic()

    def write(self, data: bytes) -> None:
        """Send bytes; those for which there is no room after as long as nothing was sent are discarded."""
        now_s = time.monotonic()
        until_s = now_s + min(now_s - self._written_s, PATIENCE_MAX_S)
        while data:
            with contextlib.suppress(BlockingIOError):
                data = data[os.write(self._master, data) :]
            if not data or time.monotonic() >= until_s:
                break
            time.sleep(0.001)
        self.discarded_bytes += len(data)
        self._written_s = time.monotonic()

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
