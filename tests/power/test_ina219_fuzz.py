"""Mutated INA219 lines: no crash, no hang, no wrong sample that goes unreported."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from power.wire.ina219.csv_decoder import CsvScale, Ina219CsvDecoder
from power.wire.ina219.csv_rows import CsvFormat
from power.wire.ina219.frames import crc16
from tests.power.ina219_runs import codes, columns, decode, run

LINES = 120
MUTATED = 16
"""Of each stream. Its header and its last lines are left alone, so that every loss shows as a gap."""

Rng = np.random.Generator


def flip_bits(line: bytes, rng: Rng) -> bytes:
    out = bytearray(line)
    for place in rng.integers(0, len(out), rng.integers(1, 5)):
        out[place] ^= 1 << int(rng.integers(0, 8))
    return bytes(out)


def replace_bytes(line: bytes, rng: Rng) -> bytes:
    start, size = int(rng.integers(0, len(line))), int(rng.integers(1, 12))
    return line[:start] + rng.bytes(size) + line[start + size :]


def change_digits(line: bytes, rng: Rng) -> bytes:
    """The nastiest: it stays a well-formed line, and only the checksum can tell."""
    out = bytearray(line)
    digits = [i for i, byte in enumerate(out) if chr(byte).isdigit()]
    for place in rng.choice(digits, min(len(digits), int(rng.integers(1, 6))), replace=False):
        out[place] = ord("0") + int(rng.integers(0, 10))
    return bytes(out)


def cut(line: bytes, rng: Rng) -> bytes:
    start = int(rng.integers(0, len(line)))
    return line[:start] + line[start + int(rng.integers(1, 20)) :]


def insert(line: bytes, rng: Rng) -> bytes:
    start = int(rng.integers(0, len(line)))
    return line[:start] + rng.bytes(int(rng.integers(1, 40))) + line[start:]


def newline_inside(line: bytes, rng: Rng) -> bytes:
    start = int(rng.integers(0, len(line)))
    return line[:start] + b"\n" + line[start:]


def swap_bytes(line: bytes, rng: Rng) -> bytes:
    out = bytearray(line)
    a, b = rng.integers(0, len(out), 2)
    out[a], out[b] = out[b], out[a]
    return bytes(out)


def twice(line: bytes, rng: Rng) -> bytes:
    return line * int(rng.integers(2, 4))


def drop(line: bytes, rng: Rng) -> bytes:
    return b""


def flood(line: bytes, rng: Rng) -> bytes:
    return line + rng.bytes(int(rng.integers(100, 3000)))


MUTATIONS: list[Callable[[bytes, Rng], bytes]] = [
    flip_bits,
    replace_bytes,
    change_digits,
    change_digits,
    cut,
    insert,
    newline_inside,
    swap_bytes,
    twice,
    drop,
    flood,
]


def mutate(lines: list[bytes], rng: Rng) -> list[bytes]:
    out = list(lines)
    for i in rng.choice(np.arange(1, LINES - 3), MUTATED, replace=False).tolist():
        if rng.random() < 0.05:
            out[i], out[i + 1] = out[i + 1], out[i]
        else:
            out[i] = MUTATIONS[int(rng.integers(0, len(MUTATIONS)))](out[i], rng)
    return out


def collides(data: bytes, index: int) -> bool:
    """Whether the damaged bytes hold a line with this number and a right checksum: nobody could tell."""
    for line in data.split(b"\n"):
        body, _, checksum = line.rstrip(b"\r").rpartition(b"*")
        if body.startswith(b"D,%d," % index) and checksum == b"%04X" % crc16(body):
            return True
    return False


@pytest.mark.campaign
def test_mutated_lines(
    campaign_count: Callable[[int, int], int], record_property: Callable[[str, object], None]
) -> None:
    """Full count: 200,000 mutated lines."""
    clean_lines = run(LINES)
    _, clean_tick, clean_current, clean_voltage = columns(decode(b"".join(clean_lines))[0])
    rng = np.random.default_rng(219)
    streams = -(-campaign_count(3_000, 200_000) // MUTATED)
    kept = undetectable = 0
    for _ in range(streams):
        mutated = mutate(clean_lines, rng)
        data = b"".join(mutated)
        blocks, decoder = decode(data, int(rng.integers(50, 5000)))
        index, tick, current, voltage = columns(blocks)
        kept += len(index)
        same = (index >= 0) & (index < LINES)
        same[same] &= (
            (tick[same] == clean_tick[index[same]])
            & (current[same] == clean_current[index[same]])
            & (voltage[same] == clean_voltage[index[same]])
        )
        for wrong in index[~same].tolist():
            assert collides(data, wrong)
            undetectable += 1
        assert np.all(np.diff(index) > 0)
        assert np.all(np.diff(tick) > 0)
        dropped = sum(block.dropped_before or 0 for block in blocks)
        assert len(index) + dropped == LINES
        if mutated != clean_lines:
            assert dropped or codes(decoder)
        assert not decoder.restarted
    record_property("mutated_lines", streams * MUTATED)
    record_property("samples_kept", kept)
    record_property("wrong_samples_with_a_right_checksum", undetectable)
    assert kept > streams * LINES // 2  # it recovers after each
    # A 16-bit checksum lets one damaged line in 65,536 through, at most.
    assert undetectable <= 1 + 5 * streams * MUTATED / 65_536


@pytest.mark.campaign
@pytest.mark.parametrize("csv_format", list(CsvFormat))
def test_mutated_loose_lines(csv_format: CsvFormat, campaign_count: Callable[[int, int], int]) -> None:
    """Nothing protects them: what is asked is no crash, ordered times, numbers an INA219 can have read."""
    rng = np.random.default_rng(220)
    rows = {
        CsvFormat.MILLIS_LOAD: b"%d,5.02,250.10\r\n",
        CsvFormat.MILLIS_ALL: b"%d,5.00,25.01,5.03,250.10\r\n",
        CsvFormat.ALL: b"5.00,25.01,5.03,%d.10\r\n",
        CsvFormat.MILLIS_CURRENT: b"%d 250.10\r\n",
        CsvFormat.ADAFRUIT: b"Bus Voltage:   5.00 V\r\nCurrent:       %d.10 mA\r\n\r\n",
    }
    lines = [rows[csv_format] % (i * 10) for i in range(LINES)]
    kept = 0
    streams = campaign_count(40, 2_500)
    for _ in range(streams):
        decoder = Ina219CsvDecoder(csv_format, CsvScale(assumed_voltage_v=5.0), 100.0)
        data = b"".join(mutate(lines, rng))
        portion = int(rng.integers(50, 5000))
        blocks = [
            block
            for start in range(0, len(data), portion)
            for block in decoder.feed(data[start : start + portion], start * 10_000)
        ]
        index, tick, current, voltage = columns(blocks)
        kept += len(index)
        assert np.all(np.diff(index) == 1)
        assert np.all(np.diff(tick) > 0)
        assert np.all(np.abs(current) <= 100)
        assert np.all((voltage >= 0) & (voltage <= 32))
        assert blocks[0].dropped_before is None
    assert kept > streams * LINES // 2
