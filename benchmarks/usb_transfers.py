"""What 5,000 USB packets a second cost: queued transfers against reads one by one; a stand-in for libusb.

The stand-in (``tests/power/libusb_stand_in``) completes transfers by the real clock and drops what an HVPM
would drop; python-libusb1 and our queue are the real ones. The kernel's own work is not in it, nor is a USB
bus: 5 kHz over real USB stays unverified. Processor time is that of the thread that reads.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.result import Figure, figure
from tests.power.libusb_stand_in.library import StandIn, load_stand_in
from tests.power.libusb_stand_in.readers import QUEUED_READS, SWITCH_INTERVAL_S, Read, one_by_one, queued

NAME = "usb_transfers"
FULL = os.environ.get("JOULEFLEET_BENCH") == "full"
REPEATS = 7 if FULL else 3
SECONDS = 5.0 if FULL else 1.0
MAX_CPU_PERCENT = 20.0
RATE_HZ = 5000
FEW = 32


@dataclass(frozen=True, slots=True)
class Run:
    """One stream: processor time in s, packets and observations that arrived, and what the device made."""

    cpu_s: float
    packets: int
    arrived: int
    made: int

    @property
    def lost_percent(self) -> float:
        """Of what the device made. What still waits in it at the end counts too, 0.06 % at most."""
        return 100 * (1 - self.arrived / self.made)


def run() -> list[Figure]:
    """The ways of reading in turn, alone and beside a thread that computes."""
    ways = {"one by one": 0, f"{FEW} queued": FEW, f"{QUEUED_READS} queued": QUEUED_READS}
    found: dict[tuple[str, bool], list[Run]] = {(way, busy): [] for way in ways for busy in (False, True)}
    sys.setswitchinterval(SWITCH_INTERVAL_S)  # as in a recording
    with tempfile.TemporaryDirectory() as folder:
        library = load_stand_in(Path(folder))
        for _ in range(REPEATS):
            for (way, busy), runs in found.items():
                transfers = ways[way]
                with queued(transfers) if transfers else one_by_one() as read, _computing(busy):
                    runs.append(_stream(library, read))
    return [*_costs(found), *_losses(found)]


def _costs(found: dict[tuple[str, bool], list[Run]]) -> Iterator[Figure]:
    note = f"{SECONDS:g} s each at {RATE_HZ:,} packets a second; stand-in, no kernel and no bus"
    for (way, busy), runs in found.items():
        if not busy:
            shares = [100 * r.cpu_s / SECONDS for r in runs]
            bar = MAX_CPU_PERCENT if str(QUEUED_READS) in way else None
            name = f"CPU of the reader, {way}"
            yield figure(NAME, name, shares, "% of a core", bar=bar, better="lower", note=note)
    single, queued = found["one by one", False], found[f"{QUEUED_READS} queued", False]
    ratios = [(b.cpu_s / b.arrived) / (a.cpu_s / a.arrived) for a, b in zip(single, queued, strict=True)]
    yield figure(NAME, "CPU per sample, queued to one by one", ratios, "x", bar=1.0, better="lower")


def _losses(found: dict[tuple[str, bool], list[Run]]) -> Iterator[Figure]:
    for (way, busy), runs in found.items():
        beside = "beside a thread that computes" if busy else "alone"
        lost = [r.lost_percent for r in runs]
        yield figure(NAME, f"samples lost {beside}, {way}", lost, "%", better="lower")


@contextmanager
def _computing(busy: bool) -> Iterator[None]:
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute, daemon=True)
    if busy:
        thread.start()
    yield
    stop.set()
    if busy:
        thread.join()


def _stream(library: StandIn, read: Read) -> Run:
    library.stand_in_start()
    packets = arrived = 0
    cpu_s, end_s = time.thread_time(), time.monotonic() + SECONDS
    while time.monotonic() < end_s:
        for packet in read():
            packets += 1
            arrived += packet[3]
    cpu_s, made = time.thread_time() - cpu_s, library.stand_in_made()
    library.stand_in_stop()
    return Run(cpu_s, packets, arrived, made)
