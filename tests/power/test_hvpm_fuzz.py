"""Damaged HVPM streams: nothing crashes or hangs, and no sample is wrong without being announced."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from power.wire.decoder import Decoded
from power.wire.hvpm import HvpmDecoder
from tests.power.hvpm_streams import StreamMaker, scale_of

HEALTHY_PACKETS = 45  # five calibrations, and some measurements that are delivered before the damage
DAMAGED_PACKETS = 24
TAIL_PACKETS = 12  # enough for the decoder to find its way back
VARIANTS = 8  # of the damage to one stream

Row = tuple[int, float, float]


def damage_header(rng: np.random.Generator, packets: list[bytes], i: int) -> None:
    """Another value in one of the four header bytes."""
    broken = bytearray(packets[i])
    broken[int(rng.integers(4))] ^= int(rng.integers(1, 256))
    packets[i] = bytes(broken)


def cut(rng: np.random.Generator, packets: list[bytes], i: int) -> None:
    packets[i] = packets[i][: int(rng.integers(len(packets[i])))]


def insert(rng: np.random.Generator, packets: list[bytes], i: int) -> None:
    place = int(rng.integers(len(packets[i]) + 1))
    packets[i] = packets[i][:place] + rng.bytes(int(rng.integers(1, 80))) + packets[i][place:]


def repeat(rng: np.random.Generator, packets: list[bytes], i: int) -> None:
    packets[i] *= int(rng.integers(2, 5))


def swap(rng: np.random.Generator, packets: list[bytes], i: int) -> None:
    packets[i], packets[i + 1] = packets[i + 1], packets[i]


def replace(rng: np.random.Generator, packets: list[bytes], i: int) -> None:
    packets[i] = rng.bytes(int(rng.integers(1, 200)))


def damage_payload(rng: np.random.Generator, packets: list[bytes], i: int) -> None:
    """Other values inside observations: USB's CRC excludes it, and the format could not show it."""
    broken = bytearray(packets[i])
    for _ in range(int(rng.integers(1, 5))):
        broken[int(rng.integers(4, len(broken)))] = int(rng.integers(256))
    packets[i] = bytes(broken)


FRAMING = (damage_header, cut, insert, repeat, swap, replace)


def run_trials(seed: int, mutated_packets: int, damages: tuple[Callable[..., None], ...]) -> dict[str, int]:
    counts = {"streams": 0, "mutated_packets": 0, "streams_with_other_samples": 0, "silent": 0}
    rng = np.random.default_rng(seed)
    while counts["mutated_packets"] < mutated_packets:
        healthy = make_stream(rng)
        clean = {row[0]: row for row in rows(decode(healthy.data, [])[0])}
        for _ in range(VARIANTS):
            packets = list(healthy.packets)
            hit = rng.choice(DAMAGED_PACKETS - 1, int(rng.integers(1, 21)), replace=False) + HEALTHY_PACKETS
            for i in hit.tolist():
                damages[int(rng.integers(len(damages)))](rng, packets, i)
            found, announced = check_stream(rng, b"".join(packets))
            differs = any(clean.get(row[0]) != row for row in found)
            counts["streams"] += 1
            counts["mutated_packets"] += len(hit)
            counts["streams_with_other_samples"] += differs
            counts["silent"] += differs and not announced
    return counts


def check_stream(rng: np.random.Generator, data: bytes) -> tuple[list[Row], set[str]]:
    """What must hold for any bytes; returns the samples and what was said about losses and damage."""
    parts, decoder = decode(data, [])
    again, other = decode(data, rng.integers(0, 400, 20).tolist())
    found = rows(parts)
    assert found == rows(again)
    assert {f.code: f for f in decoder.findings} == {f.code: f for f in other.findings}
    assert len(decoder._rest) < 400
    ticks = [row[0] for row in found]
    assert ticks == sorted(set(ticks))
    assert np.isfinite(found).all()
    announced = {f.code for f in decoder.findings} - {"calibrating", "clipping"}
    return found, announced | {"gap" for part in parts if part.dropped_before}


def make_stream(rng: np.random.Generator) -> StreamMaker:
    sizes = [(3,), (1,), (1, 2, 3)][int(rng.integers(3))]
    stream = StreamMaker(rng, sizes=sizes, calibration_every=int(rng.integers(5, 8)))
    stream.add(HEALTHY_PACKETS + DAMAGED_PACKETS + TAIL_PACKETS)
    stream.finish()
    return stream


def decode(data: bytes, portions: list[int]) -> tuple[list[Decoded], HvpmDecoder]:
    decoder = HvpmDecoder(scale_of("hv"))
    out: list[Decoded] = []
    position = 0
    for size in [*portions, len(data)]:
        out += decoder.feed(data[position : position + size], 0)
        position += size
    return out, decoder


def rows(decoded: list[Decoded]) -> list[Row]:
    return [
        row
        for part in decoded
        for row in zip(part.ticks.tolist(), part.current_a.tolist(), part.voltage_v.tolist(), strict=True)
    ]


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_damaged_framing_is_never_silent(campaign_count, record_property) -> None:
    result = run_trials(1, campaign_count(3000, 200_000), FRAMING)
    for name, value in result.items():
        record_property(name, value)
    assert result["silent"] == 0
    assert result["streams_with_other_samples"] > 0


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_damaged_payload_stays_a_number(campaign_count, record_property) -> None:
    """The format cannot show wrong bytes inside an observation: whatever they are, they decode alike."""
    result = run_trials(2, campaign_count(1000, 50_000), (damage_payload,))
    for name, value in result.items():
        record_property(name, value)
    assert result["streams_with_other_samples"] > 0  # the damage is there


def test_random_bytes() -> None:
    decoder = HvpmDecoder(scale_of("hv"))
    rng = np.random.default_rng(3)
    parts: list[Decoded] = []
    for _ in range(200):
        parts += decoder.feed(rng.bytes(int(rng.integers(1, 5000))), 0)
    assert parts == []
    assert len(decoder._rest) < 400
