"""A pseudo-random pattern of CPU bursts that can be found again in a power trace, to align two clocks.

The bits are a maximum-length sequence: its autocorrelation has one sharp peak, so that the lag at which the
power trace matches best is the offset between the meter's clock and the device's. The host generates the same
bits from the marker's parameters. The default of 63 bits of 50 ms located a 1 W step under 0.3 W of noise to
0.7 ms at 5 kHz and 2 ms at 100 Hz in simulation.
"""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Pattern", "m_sequence", "unpack_lateness"]

# Feedback taps of maximum-length shift registers (P. Alfke, Xilinx application note XAPP052, table 3).
TAPS = {
    3: (3, 2),
    4: (4, 3),
    5: (5, 3),
    6: (6, 5),
    7: (7, 6),
    8: (8, 6, 5, 4),
    9: (9, 5),
    10: (10, 7),
}

_BURST = bytes(65_536)
"""Hashing a block this large takes some 0.1 ms and runs outside the interpreter lock: threads load cores."""

_PIECE_BYTES = 96  # 128 characters, the longest text that a marker may carry
_LATEST_US = 2**24 - 1


@dataclass(frozen=True)
class Pattern:
    """Parameters of a pattern; the marker carries them.

    Attributes:
        order: Length of the shift register: 2**order - 1 bits.
        bit_ns: Duration of one bit.
        cores: How many cores work during a one.
    """

    order: int = 6
    bit_ns: int = 50_000_000
    cores: int = 1

    @property
    def duration_ns(self) -> int:
        """Of the whole pattern."""
        return int((2**self.order - 1) * self.bit_ns)

    def bits(self) -> list[int]:
        """Ones (busy) and zeros (asleep)."""
        return m_sequence(self.order)

    @staticmethod
    def parse(value: dict[str, Any]) -> Pattern:
        """From a job.

        Raises:
            ValueError: Out of range.
        """
        pattern = Pattern(int(value["order"]), int(value["bit_ns"]), int(value["cores"]))
        if pattern.order not in TAPS or not 10**6 <= pattern.bit_ns <= 10**10 or not 1 <= pattern.cores <= 64:
            raise ValueError("order 3 to 10, 1 ms to 10 s per bit, 1 to 64 cores")
        return pattern


def m_sequence(order: int) -> list[int]:
    """One period of a maximum-length sequence, from the register filled with ones."""
    register = [1] * order
    bits = []
    for _ in range(2**order - 1):
        bits.append(register[-1])
        feedback = 0
        for tap in TAPS[order]:
            feedback ^= register[tap - 1]
        register = [feedback, *register[:-1]]
    return bits


def play(pattern: Pattern, start_ns: int) -> list[int]:
    """Burn and sleep along the pattern; bit ``i`` begins at ``start_ns + i * bit_ns`` on the monotonic clock.

    Every edge is taken from the schedule, so that a late one does not delay those after it.

    Returns:
        How late each change between busy and asleep was, nanoseconds.
    """
    bits = pattern.bits()
    over = threading.Event()
    helpers = [
        threading.Thread(target=_play, args=(bits, pattern.bit_ns, start_ns, over), name="sync", daemon=True)
        for _ in range(pattern.cores - 1)
    ]
    for helper in helpers:
        helper.start()
    try:
        return _play(bits, pattern.bit_ns, start_ns, over)
    finally:
        over.set()
        for helper in helpers:
            helper.join()


def _play(bits: list[int], bit_ns: int, start_ns: int, over: threading.Event) -> list[int]:
    late_ns = []
    before = 0
    for number, bit in enumerate(bits, start=1):
        until_ns = start_ns + number * bit_ns
        if over.is_set():
            break
        if bit != before:
            late_ns.append(time.monotonic_ns() - (until_ns - bit_ns))
        before = bit
        if bit:
            while time.monotonic_ns() < until_ns:
                hashlib.sha256(_BURST)
        else:
            time.sleep(max(0.0, (until_ns - time.monotonic_ns()) * 1e-9))
    return late_ns


def pack_lateness(late_ns: list[int]) -> dict[str, str]:
    """What `play` returned as values that a marker may carry: microseconds in three bytes each, as base64."""
    data = b"".join(min(max(ns // 1000, 0), _LATEST_US).to_bytes(3, "big") for ns in late_ns)
    pieces = [data[i : i + _PIECE_BYTES] for i in range(0, len(data), _PIECE_BYTES)]
    return {f"late_us_{i}": base64.b64encode(piece).decode() for i, piece in enumerate(pieces)}


def unpack_lateness(extra: Mapping[str, Any]) -> list[int]:
    """The inverse of `pack_lateness`, nanoseconds; empty if the marker carries none.

    Raises:
        ValueError: It is no base64.
    """
    pieces = [str(extra[f"late_us_{i}"]) for i in range(len(extra)) if f"late_us_{i}" in extra]
    data = b"".join(base64.b64decode(piece, validate=True) for piece in pieces)
    return [int.from_bytes(data[i : i + 3], "big") * 1000 for i in range(0, len(data), 3)]
