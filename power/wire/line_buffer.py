"""Whole lines out of a byte stream, in bounded memory."""

from __future__ import annotations


class LineBuffer:
    """Keeps an unfinished line for the next call, and gives up on one that grows without end.

    Args:
        longest: Longest line in bytes, without its newline.

    Attributes:
        overlong: Lines that were longer, and were thrown away.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._tail = b""
        self._skipping = False
        self.overlong = 0

    def feed(self, data: bytes) -> bytes:
        """More bytes in; the lines that are whole by now out, each with its newline."""
        if self._skipping:
            end = data.find(b"\n")
            if end < 0:
                return b""
            data = data[end + 1 :]
            self._skipping = False
        data = self._tail + data
        end = data.rfind(b"\n") + 1
        whole, self._tail = data[:end], data[end:]
        if len(self._tail) > self._longest:
            self.overlong += 1
            self._tail = b""
            self._skipping = True
        return self._without_overlong(whole)

    def _without_overlong(self, whole: bytes) -> bytes:
        if len(whole) <= self._longest:
            return whole
        lines = whole.split(b"\n")
        if max(map(len, lines)) <= self._longest:
            return whole
        kept = [line for line in lines if len(line) <= self._longest]
        self.overlong += len(lines) - len(kept)
        return b"\n".join(kept)
