"""Mutated LVPM packets: no crash, no hang, no wrong sample that goes unreported."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from power.wire.lvpm import LvpmDecoder
from tests.power.lvpm_reference import STEP_V, clean_stream, decode_slowly

PACKETS = 40
FIRST, LAST = 4, 32  # the calibration before and eight packets after are left alone
MAX_MUTATIONS = 12

Mutation = Callable[[bytes, np.random.Generator], bytes]


def flip_bits(packet: bytes, rng: np.random.Generator) -> bytes:
    out = bytearray(packet)
    for place in rng.integers(0, len(out), rng.integers(1, 4)):
        out[place] ^= 1 << int(rng.integers(0, 8))
    return bytes(out)


def replace_bytes(packet: bytes, rng: np.random.Generator) -> bytes:
    start = int(rng.integers(0, len(packet)))
    size = int(rng.integers(1, 10))
    return packet[:start] + rng.bytes(size) + packet[start + size :]


def cut(packet: bytes, rng: np.random.Generator) -> bytes:
    start = int(rng.integers(0, len(packet)))
    return packet[:start] + packet[start + int(rng.integers(1, 30)) :]


def insert(packet: bytes, rng: np.random.Generator) -> bytes:
    start = int(rng.integers(0, len(packet)))
    return packet[:start] + rng.bytes(int(rng.integers(1, 70))) + packet[start:]


def zero_out(packet: bytes, rng: np.random.Generator) -> bytes:
    start = int(rng.integers(0, len(packet)))
    size = int(rng.integers(1, 20))
    return packet[:start] + bytes(size) + packet[start + size :]


def set_length(packet: bytes, rng: np.random.Generator) -> bytes:
    return bytes([int(rng.integers(0, 256))]) + packet[1:]


def spoil_and_sign(packet: bytes, rng: np.random.Generator) -> bytes:
    """Wrong contents under a right checksum: what no decoder can tell from the truth but by its meaning."""
    out = bytearray(packet[:-1])
    out[int(rng.integers(1, len(out)))] = int(rng.integers(0, 256))
    return bytes(out) + bytes([sum(out) % 256])


def repeat(packet: bytes, rng: np.random.Generator) -> bytes:
    return packet * int(rng.integers(2, 4))


def remove(packet: bytes, rng: np.random.Generator) -> bytes:
    return b""


MUTATIONS: list[Mutation] = [
    flip_bits,
    replace_bytes,
    cut,
    insert,
    zero_out,
    set_length,
    spoil_and_sign,
    repeat,
    remove,
]


def looks_clean(data: bytes) -> bool:
    """Whether every packet checks and follows the one before: then no reader can see a mutation."""
    at, sequence = 0, None
    while at < len(data):
        whole = data[at : at + data[at] + 1]
        if len(whole) < 13 or len(whole) % 8 != 7 or sum(whole[:-1]) % 256 != whole[-1]:
            return False
        if whole[1] >= 64 or whole[2] > 2 or (sequence is not None and whole[1] % 16 != (sequence + 1) % 16):
            return False
        sequence = whole[1] % 16
        at += len(whole)
    return True


@pytest.mark.campaign
def test_mutated_packets(
    campaign_count: Callable[[int, int], int], record_property: Callable[[str, object], None]
) -> None:
    wanted = campaign_count(4_000, 200_000)
    rng = np.random.default_rng(20_261_116)
    clean = clean_stream(PACKETS)
    truth, reported, _ = decode_in_portions(b"".join(clean), rng)
    assert not reported
    mutated = invisible = streams = wrong_but_reported = 0
    while mutated < wanted:
        stream = list(clean)
        for i in rng.choice(range(FIRST, LAST), rng.integers(1, MAX_MUTATIONS), replace=False):
            stream[i] = MUTATIONS[rng.integers(0, len(MUTATIONS))](stream[i], rng)
            mutated += 1
        data = b"".join(stream)
        rows, reported, losses = decode_in_portions(data, rng)
        slow = decode_slowly(data)
        np.testing.assert_allclose(
            np.array(rows).reshape(-1, 3), np.array(slow.samples).reshape(-1, 3), rtol=1e-12, atol=1e-15
        )
        assert losses == slow.lost
        if rows != truth and not reported and not losses:
            assert looks_clean(data), "a sample differs from the truth, and nothing says so"
            invisible += 1
        elif rows != truth:
            wrong_but_reported += 1
        assert "before_calibration" not in reported, "the calibration came first in every stream"
        if "bad_calibration" not in reported:  # a spoilt but signed packet can undo the calibration
            assert [row[2] for row in rows[-21:]] == [row[2] for row in truth[-21:]], "did not find back"
        streams += 1
    record_property("mutated_packets", mutated)
    record_property("streams", streams)
    record_property("streams_with_reported_damage", wrong_but_reported)
    record_property("streams_with_valid_checksums_and_wrong_contents", invisible)


def decode_in_portions(
    data: bytes, rng: np.random.Generator
) -> tuple[list[tuple[int, float, float]], set[str], dict[int, int]]:
    unit = LvpmDecoder(voltage_step_v=STEP_V, rate_hz=5000.0)
    edges = np.sort(rng.integers(0, len(data) + 1, rng.integers(0, 6)))
    blocks = []
    for part in np.split(np.frombuffer(data, np.uint8), edges):
        blocks += unit.feed(part.tobytes(), 0)
    rows = [
        row
        for block in blocks
        for row in zip(block.ticks.tolist(), block.current_a.tolist(), block.voltage_v.tolist(), strict=True)
    ]
    losses = {block.first_index: block.dropped_before for block in blocks if block.dropped_before}
    return rows, {finding.code for finding in unit.findings}, losses


@pytest.mark.campaign
def test_pure_noise(
    campaign_count: Callable[[int, int], int], record_property: Callable[[str, object], None]
) -> None:
    """Random bytes never become samples unreported, and the next real packets are found."""
    megabytes = campaign_count(1, 50)
    rng = np.random.default_rng(7)
    unit = LvpmDecoder(voltage_step_v=STEP_V, rate_hz=5000.0)
    unit.feed(b"".join(clean_stream(4)), 0)
    samples = sum(len(block.ticks) for _ in range(megabytes) for block in unit.feed(rng.bytes(1_000_000), 0))
    assert {"bad_checksum"} <= {finding.code for finding in unit.findings}
    found = unit.feed(b"".join(clean_stream(12)), 0)
    assert sum(len(block.ticks) for block in found) >= 10 * 7
    record_property("noise_megabytes", megabytes)
    record_property("samples_made_of_noise", samples)
    assert samples == 0
