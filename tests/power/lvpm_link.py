"""An LVPM, its cable and a host that is sometimes away, in simulated time and sample by sample.

The instrument keeps 75 samples (five packets; firmware 20 keeps about 80) and loses what comes when they are
full; byte 3 of the packet behind a gap counts them modulo 256. The kernel keeps 4 KB. A sample's voltage
tells its true number, modulo 16,384.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tests.power.lvpm_reference import main_reading, packet, reference_packet, zero_packet

RATE_HZ = 5000
KEPT_SAMPLES = 75
KERNEL_BYTES = 4096
PACKET_SAMPLES = 15
NUMBERS = 1 << 14


@dataclass(frozen=True)
class Stall:
    """Nothing gets through: the instrument is not asked (``device``), or nobody reads its port (``host``)."""

    at_s: float
    seconds: float
    cause: str = "device"

    def covers(self, t_s: float, cause: str) -> bool:
        return self.cause == cause and self.at_s <= t_s < self.at_s + self.seconds


@dataclass
class Link:
    """Runs for some seconds; `reads` gives what a reader gets and when."""

    seconds: float
    stalls: tuple[Stall, ...] = ()
    skew_ppm: float = 0.0
    jitter_s: float = 0.001
    seed: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)  # behind which sample, and how many

    def reads(self) -> Iterator[tuple[int, bytes]]:
        """Arrival (ns) and bytes of each read."""
        rng = np.random.default_rng(self.seed)
        kept: list[int] = []
        kernel = [zero_packet(0), reference_packet(1)]
        sequence, gap, behind_gap, last_read_s = 2, 0, -1, 0.0
        for number in range(round(self.seconds * RATE_HZ)):
            t_s = number / (RATE_HZ * (1 + self.skew_ppm * 1e-6))
            if len(kept) < KEPT_SAMPLES:
                if gap and behind_gap < 0:
                    behind_gap = number
                kept.append(number)
            else:
                gap += 1
            asked = not any(s.covers(t_s, "device") for s in self.stalls)
            while asked and len(kept) >= PACKET_SAMPLES and sum(map(len, kernel)) < KERNEL_BYTES:
                numbers, kept = kept[:PACKET_SAMPLES], kept[PACKET_SAMPLES:]
                lost = 0
                if numbers[0] == behind_gap:
                    self.lost.append((behind_gap, gap))
                    lost, gap, behind_gap = gap, 0, -1
                rows = [(main_reading(i), 5, -5, i % NUMBERS * 4) for i in numbers]
                kernel.append(packet(sequence, 0, rows, lost=lost % 256))
                sequence += 1
            if kernel and not any(s.covers(t_s, "host") for s in self.stalls):
                arrival_s = max(t_s + float(rng.exponential(self.jitter_s)), last_read_s + 1e-5)
                last_read_s = arrival_s
                yield round((1000 + arrival_s) * 1e9), b"".join(kernel)
                kernel = []

    def portions(self, every_s: float = 0.1, break_s: float = 0.04) -> Iterator[tuple[int, bytes]]:
        """Reads put together as `power.meters.streaming` does it."""
        data, last_ns, began_ns = b"", 0, 0
        for arrival_ns, read in self.reads():
            if data and (arrival_ns - last_ns > break_s * 1e9 or arrival_ns - began_ns > every_s * 1e9):
                yield last_ns, data
                if arrival_ns - last_ns > break_s * 1e9:
                    yield arrival_ns, b""
                data = b""
            began_ns = began_ns if data else arrival_ns
            data, last_ns = data + read, arrival_ns
        yield last_ns, data
