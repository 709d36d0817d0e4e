"""How fast LVPM bytes become samples: against real time, and against a loop over packets and samples."""

from __future__ import annotations

import time

from benchmarks.result import Figure, figure
from power.wire import LvpmDecoder
from tests.power.lvpm_reference import (
    STEP_V,
    data_packets,
    decode_slowly,
    reference_packet,
    zero_packet,
)

RATE_HZ = 5000.0
SECONDS = 10
REPEATS = 7
BAR = 100.0
PORTION_BYTES = 2400
"""What the capture pipeline decodes at once: 50 ms of stream."""


def stream(seconds: int = SECONDS) -> bytes:
    """Packets of 7 samples with a calibration pair every second."""
    packets = int(seconds * RATE_HZ / 7)
    per_second = packets // seconds
    data = data_packets(packets, first_sequence=0)
    out, sequence = [], 0
    for i, packet in enumerate(data):
        if i % per_second == 0:
            out += [zero_packet(sequence), reference_packet(sequence + 1)]
            sequence += 2
        out.append(_renumbered(packet, sequence))
        sequence += 1
    return b"".join(out)


def _renumbered(packet: bytes, sequence: int) -> bytes:
    flags = packet[1] & 0xF0 | sequence % 16
    body = bytes([packet[0], flags]) + packet[2:-1]
    return body + bytes([sum(body) % 256])


def _decode(data: bytes, portion: int) -> int:
    decoder = LvpmDecoder(voltage_step_v=STEP_V, rate_hz=RATE_HZ)
    samples = 0
    for start in range(0, len(data), portion):
        for block in decoder.feed(data[start : start + portion], 0):
            samples += len(block.ticks)
    if decoder.findings:
        raise RuntimeError(f"the benchmark's own stream is not clean: {decoder.findings}")
    return samples


def _cpu_s(data: bytes, portion: int, expected: int) -> float:
    """CPU time of one run: the machine's other work is not ours to measure."""
    start = time.process_time()
    samples = _decode(data, portion)
    used_s = time.process_time() - start
    if samples != expected:
        raise RuntimeError(f"{samples} samples, but the loop finds {expected}")
    return used_s


def run() -> list[Figure]:
    """Ten seconds of stream, decoded at once and in the portions of a live capture."""
    data = stream()
    start = time.process_time()
    expected = len(decode_slowly(data).samples)
    loop_s = time.process_time() - start
    span_s = expected / RATE_HZ
    figures: list[Figure] = []
    for how, portion in (("at once", len(data)), ("in 50 ms portions, as live", PORTION_BYTES)):
        used_s = [_cpu_s(data, portion, expected) for _ in range(REPEATS)]
        figures.append(
            figure(
                "lvpm_decode",
                f"LVPM decode {how}, per core",
                [span_s / used for used in used_s],
                "x real time",
                bar=BAR,
            )
        )
        figures.append(
            figure(
                "lvpm_decode",
                f"LVPM decode {how}, against a loop over samples",
                [loop_s / used for used in used_s],
                "x",
                note="the slow decoder of the tests",
            )
        )
    return figures
