"""How fast INA219 lines become samples, against real time."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from benchmarks.result import Figure, figure
from power.wire import CsvFormat, CsvScale, Ina219CsvDecoder
from tests.power.ina219_runs import decode
from tests.power.ina219_runs import run as protocol_run

RATE_HZ = 1000.0
SECONDS = 60
REPEATS = 7
BAR = 100.0
PORTION_S = 0.05
"""What the capture pipeline decodes at once."""

LOOSE_HZ = 570.0
"""What 115200 baud carries of 20-byte lines."""


def _decode(data: bytes, portion: int) -> int:
    blocks, _ = decode(data, portion)
    return sum(len(block.ticks) for block in blocks)


def _damaged(lines: list[bytes]) -> list[bytes]:
    """One line in a hundred with a wrong byte, which costs its portion the quick way through."""
    return [line.replace(b",", b";", 1) if i % 100 == 50 else line for i, line in enumerate(lines)]


def _decode_loose(data: bytes) -> int:
    decoder = Ina219CsvDecoder(CsvFormat.MILLIS_LOAD, CsvScale(), LOOSE_HZ)
    return sum(len(block.ticks) for block in decoder.feed(data, 0))


def _cpu_s(work: Callable[[], int], expected: int) -> float:
    """CPU time of one run: the machine's other work is not ours to measure."""
    start = time.process_time()
    samples = work()
    used_s = time.process_time() - start
    if samples != expected:
        raise RuntimeError(f"{samples} samples instead of {expected}")
    return used_s


def run() -> list[Figure]:
    """A minute at 1 kHz, decoded at once and in the portions of a live capture; loose lines beside it."""
    count = int(SECONDS * RATE_HZ)
    lines = protocol_run(count)
    clean, damaged = b"".join(lines), b"".join(_damaged(lines))
    live = int(len(clean) / SECONDS * PORTION_S)
    figures: list[Figure] = []
    for how, data, portion, expected in (
        ("at once", clean, len(clean), count),
        ("in 50 ms portions, as live", clean, live, count),
        ("as live, 1 % of the lines damaged", damaged, live, count - count // 100),
    ):
        used_s = [_cpu_s(partial(_decode, data, portion), expected) for _ in range(REPEATS)]
        figures.append(
            figure(
                "ina219_decode",
                f"INA219 decode {how}, per core",
                [SECONDS / used for used in used_s],
                "x real time",
                bar=BAR,
                note="at 1 kHz",
            )
        )
    rows = int(SECONDS * LOOSE_HZ)
    loose = b"torn\n" + b"".join(b"%d,5.03,250.10\r\n" % (i * 1000 // LOOSE_HZ) for i in range(rows))
    used_s = [_cpu_s(partial(_decode_loose, loose), rows) for _ in range(REPEATS)]
    figures.append(
        figure(
            "ina219_decode",
            "INA219 loose lines, per core",
            [SECONDS / used for used in used_s],
            "x real time",
            note=f"at {LOOSE_HZ:g} Hz",
        )
    )
    return figures
