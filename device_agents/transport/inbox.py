"""Bytes from a device cut into lines and blocks, in bounded memory and with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

from device_agents.payload.link.wire import MAX_LINE_BYTES
from joulefleet.errors import DeviceError, DeviceUnreachable


class Inbox:
    """Bytes of one sender.

    Args:
        read_some: Called with a time-out in seconds; returns bytes, ``b""`` at the end, None on a time-out.
        whose: What errors call the sender.
        last_words: What it said elsewhere before it ended, for the error message.
    """

    def __init__(
        self,
        read_some: Callable[[float], bytes | None],
        whose: str,
        last_words: Callable[[], str] = lambda: "",
    ) -> None:
        self._read_some = read_some
        self._whose = whose
        self._last_words = last_words
        self._buffer = bytearray()

    def line(self, timeout_s: float) -> bytes:
        """The next line without its newline."""
        deadline_s = time.monotonic() + timeout_s
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > MAX_LINE_BYTES:
                raise DeviceError(f"{self._whose} sent a line longer than {MAX_LINE_BYTES} bytes")
            self._fill(deadline_s, timeout_s)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        if len(line) > MAX_LINE_BYTES:
            raise DeviceError(f"{self._whose} sent a line longer than {MAX_LINE_BYTES} bytes")
        return line

    def exactly(self, size: int, timeout_s: float) -> bytes:
        """The next ``size`` bytes."""
        deadline_s = time.monotonic() + timeout_s
        while len(self._buffer) < size:
            self._fill(deadline_s, timeout_s)
        block = bytes(self._buffer[:size])
        del self._buffer[:size]
        return block

    def _fill(self, deadline_s: float, timeout_s: float) -> None:
        data = self._read_some(max(0.0, deadline_s - time.monotonic()))
        if data is None:
            raise DeviceUnreachable(
                f"{self._whose} was silent for {timeout_s:g} s", hint="is the device awake?"
            )
        if not data:
            words = self._last_words()
            raise DeviceUnreachable(
                f"{self._whose} ended unexpectedly" + (f": {words[:200]}" if words else ""),
                hint="see its messages (agent.log)",
            )
        self._buffer += data
