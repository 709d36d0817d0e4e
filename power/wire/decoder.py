"""What every wire decoder looks like to those who use it, and what decoders of text lines share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from power.model import Finding


@dataclass(frozen=True, slots=True)
class Decoded:
    """Contiguous samples on the instrument's own clock; fields as in `power.model.SampleBlock`."""

    first_index: int
    dropped_before: int | None
    ticks: NDArray[np.int64]
    current_a: NDArray[np.floating[Any]]
    voltage_v: NDArray[np.floating[Any]]


class Decoder(Protocol):
    """Turns an instrument's bytes into samples. Never raises on bad bytes: it resynchronises and says so."""

    def feed(self, data: bytes, arrival_ns: int) -> list[Decoded]:
        """Decode more bytes, the last of which had arrived at host time ``arrival_ns``.

        Bytes of an unfinished frame are kept for the next call. Feeding the same bytes in other
        portions gives the same samples. No bytes mean that none had come since the last call.
        """

    def finish(self) -> list[Decoded]:
        """What was held back, now that no more bytes come."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was wrong with the bytes so far, merged by code."""

    @property
    def heard(self) -> dict[str, int]:
        """What came that is no sample, and how often: calibrations, answers."""


class LineBuffer:
    """Whole lines out of a byte stream, in bounded memory: an unfinished one waits, an endless one goes.

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
