"""The LVPM decoder and its parts, against packets built by hand and a slow decoder written separately."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from power.wire import lvpm_frames as wire
from power.wire.decoder import Decoded
from power.wire.hvpm_control import UsbPassthrough
from power.wire.lvpm import LvpmDecoder
from tests.power.lvpm_reference import (
    COARSE_REF,
    COARSE_ZERO,
    FINE_REF,
    FINE_ZERO,
    STEP_V,
    clean_stream,
    data_packets,
    decode_slowly,
    frame,
    main_reading,
    packet,
    reference_packet,
    zero_packet,
)

FINE_A = 0.0332 / (FINE_REF - FINE_ZERO)
COARSE_A = 2.88 / (COARSE_REF - COARSE_ZERO)


def decoder(**changes: float) -> LvpmDecoder:
    return LvpmDecoder(**{"voltage_step_v": STEP_V, "rate_hz": 5000.0, **changes})


def decode(data: bytes, cuts: list[int] | None = None) -> tuple[list[Decoded], dict[str, int]]:
    """Feed the data, cut at the given places; blocks, and how often each finding was made."""
    unit = decoder()
    edges = [0, *sorted(c % (len(data) + 1) for c in cuts or []), len(data)]
    blocks = [block for a, b in itertools.pairwise(edges) for block in unit.feed(data[a:b], 0)]
    return blocks, {finding.code: finding.count for finding in unit.findings}


def samples_of(blocks: list[Decoded]) -> list[tuple[int, float, float]]:
    return [
        row
        for block in blocks
        for row in zip(block.ticks.tolist(), block.current_a.tolist(), block.voltage_v.tolist(), strict=True)
    ]


def assert_same(rows: list[tuple[int, float, float]], expected: list[tuple[int, float, float]]) -> None:
    np.testing.assert_allclose(
        np.array(rows).reshape(-1, 3), np.array(expected).reshape(-1, 3), rtol=1e-12, atol=1e-15
    )


def losses_of(blocks: list[Decoded]) -> dict[int, int]:
    return {block.first_index: block.dropped_before for block in blocks if block.dropped_before}


# Commands and status


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (wire.GET_STATUS, "04010000 05"),
        (wire.STOP, "03 0300 06"),
        (wire.PREPARE, "04011b0121"),
        (wire.START, "0802ffffffff03e8f1"),
        (wire.set_voltage(170), "040101aab0"),
        (wire.set_voltage(0), "0401010006"),
        (wire.set_limit(wire.Limit.RUN_TIME, 0x1B2, 0x2BC)[0], "04010b0212"),
        (wire.set_limit(wire.Limit.RUN_TIME, 0x1B2, 0x2BC)[1], "04010abccb"),
        (wire.set_limit(wire.Limit.POWER_UP, 0x3BF, 0x101)[0], "040108010e"),
        (wire.set_limit(wire.Limit.POWER_UP, 0x3BF, 0x101)[1], "040109010f"),
        (wire.set_usb_passthrough(UsbPassthrough.AUTO), "0401100217"),
    ],
)
def test_commands_are_these_bytes(command: bytes, expected: str) -> None:
    assert command.hex() == expected.replace(" ", "")


def test_every_voltage_step_has_its_code_and_nothing_rounds_up() -> None:
    assert [wire.voltage_code(round(2.0 + n / 100, 2)) for n in range(1, 256)] == list(range(1, 256))
    assert wire.voltage_code(4.2099) == 220
    for refused in (0.0, 2.0, 4.56, -1.0, float("nan"), float("inf"), float("-inf")):
        with pytest.raises(ValueError, match="outside"):
            wire.voltage_code(refused)


@pytest.mark.parametrize("limit", wire.Limit)
def test_a_limit_is_never_higher_than_the_old_and_the_new_one(limit: wire.Limit) -> None:
    """Two commands change it; a code is the lower the higher its current."""
    for old, new in itertools.product(range(0, 1024, 31), repeat=2):
        code = old
        for command in wire.set_limit(limit, old, new):
            high = command[2] == limit + 1
            code = code & 0xFF | command[3] << 8 if high else code & 0xFF00 | command[3]
            assert code >= min(old, new)
        assert code == new


def test_current_limit_codes() -> None:
    assert wire.current_limit_code(8.0) == 0
    assert wire.current_limit_code(0.0) == 1023
    assert wire.current_limit_code(4.0) == 1023 - 511
    for code in range(1024):
        assert wire.current_limit_code(8 * (1023 - code) / 1023) == code


def status_body(**fields: int) -> bytes:
    values = dict.fromkeys(wire.STATUS_FIELDS, 0) | {"packetType": 0x10} | fields
    return struct.pack(">BBBhhhHhhhHBBBBBbHBHHHHBbbHHBBBbbbbbbbbbBH", *values.values())


def test_status_fields_lie_where_the_clients_read_them() -> None:
    body = bytearray(58)
    body[0] = 0x10
    body[19] = 220  # outputVoltageSetting
    body[25:27] = (4711).to_bytes(2)  # serialNumber
    body[27] = 5  # sampleRate
    body[32:36] = bytes.fromhex("01ff03ff")  # both current limits
    status = wire.Status.decode(bytes(body))
    assert (status.serial_number, status.rate_hz) == (4711, 5000.0)
    assert status.output_setting_v == pytest.approx(4.2)
    assert status.power_up_limit_a == pytest.approx(8 * 512 / 1023)
    assert status.run_time_limit_a == 0
    assert status.encode() == bytes(body)


def test_status_scaling_and_facts() -> None:
    body = status_body(
        hardwareRevision=1, mainFineResistor=-5, auxFineResistor=10, voltage1=32_000, dacCalLow=7
    )
    status = wire.Status.decode(body)
    assert status.voltage_step_v == 62.5e-6
    assert wire.Status.decode(status_body(hardwareRevision=2)).voltage_step_v == 125e-6
    facts = status.facts()
    assert facts["mainFineResistor_ohm"] == pytest.approx(0.0495)
    assert facts["auxFineResistor_ohm"] == pytest.approx(0.101)
    assert facts["voltage1_v"] == pytest.approx(4.0)
    assert facts["dacCalLow"] == 7


def test_what_is_no_status_packet_is_refused() -> None:
    for body in (b"", bytes(58), b"\x10" + bytes(56)):
        with pytest.raises(ValueError, match="not a status"):
            wire.Status.decode(body)


def test_a_status_packet_is_found_among_samples_and_debris() -> None:
    good = frame(status_body(serialNumber=9))
    bad = good[:-1] + bytes([good[-1] ^ 1])
    status = wire.find_status(b"\x3b\x10" + bad + b"".join(data_packets(3)) + good + b"\x07")
    assert status is not None
    assert status.serial_number == 9
    assert wire.find_status(bad + good[:30]) is None


# Samples


def test_both_ranges_and_the_measured_voltage() -> None:
    rows = [(2100, 0, 0, 32_000), (-900, 0, 0, 32_003), (1461, 0, 0, 33_000), (-39, 0, 0, 65_535)]
    (block,), seen = decode(zero_packet(0) + reference_packet(1) + packet(2, 0, rows))
    # Bit 0 is cleared, not shifted out: 1461 is 1460 coarse counts, -39 is -40.
    assert block.current_a == pytest.approx([2000 * FINE_A, -1000 * FINE_A, 1500 * COARSE_A, 0.0])
    assert block.voltage_v == pytest.approx([4.0, 4.0, 4.125, 65_532 * 125e-6])
    assert seen == {}


def test_first_hardware_revision_has_half_the_voltage_step() -> None:
    unit = decoder(voltage_step_v=62.5e-6)
    (block,) = unit.feed(zero_packet(0) + reference_packet(1) + packet(2, 0, [(0, 0, 0, 40_000)]), 0)
    assert block.voltage_v == pytest.approx([2.5])


def test_samples_before_the_calibration_are_left_out_but_counted() -> None:
    early = data_packets(3, first_sequence=14)
    late = packet(3, 0, [(FINE_ZERO, 0, 0, 32_000)] * 7)
    (block,), seen = decode(b"".join(early) + zero_packet(1) + reference_packet(2) + late)
    assert (block.first_index, block.dropped_before, len(block.ticks)) == (21, 0, 7)
    assert seen == {"before_calibration": 21}


def test_calibration_is_averaged_over_five_readings() -> None:
    # 16 counts of zero noise are 27 uA, which is noise and no new calibration.
    zeros = [FINE_ZERO + 1000, *(FINE_ZERO + d for d in (16, -16, 8, -8, 0))]
    stream = [zero_packet(i, fine=z) for i, z in enumerate(zeros)]
    stream += [reference_packet(6), packet(7, 0, [(FINE_ZERO, 0, 0, 0)])]
    (block,), seen = decode(b"".join(stream))
    assert block.current_a == pytest.approx([0.0], abs=1e-12)
    assert seen == {}


def test_a_changed_calibration_counts_once_the_next_one_agrees() -> None:
    changed = {"fine": FINE_ZERO + 400}, {"fine": FINE_REF + 400}
    stream = clean_stream(2)
    stream += [zero_packet(4, **changed[0]), reference_packet(5, **changed[1])]
    stream += [packet(6, 0, [(FINE_ZERO + 400, 0, 0, 0)] * 7)]
    stream += [zero_packet(7, **changed[0]), reference_packet(8, **changed[1])]
    stream += [packet(9, 0, [(FINE_ZERO + 400, 0, 0, 0)] * 7)]
    blocks, seen = decode(b"".join(stream))
    assert blocks[1].current_a == pytest.approx([400 * 0.0332 / 20_000] * 7)
    assert blocks[2].current_a == pytest.approx([0.0] * 7, abs=1e-12)
    assert seen == {"odd_calibration": 2, "recalibrated": 2}
    # A new calibration is no gap, but its four rows take the place of samples.
    assert [(block.first_index, len(block.ticks), block.dropped_before) for block in blocks] == [
        (0, 14, 0),
        (18, 7, 0),
        (29, 7, 0),
    ]


@pytest.mark.parametrize("kind", [1, 2])
def test_one_forged_calibration_scales_nothing(kind: int) -> None:
    """A data packet that damage turned into a calibration, under a right sum; then the right one again."""
    stream = clean_stream(2)
    stream += [packet(4, kind, [(9_000, 0, 0, 0), (3_000, 0, 0, 0)] * 4)]
    stream += [zero_packet(5), reference_packet(6), packet(7, 0, [(FINE_ZERO + 2_000, 0, 0, 0)] * 7)]
    blocks, seen = decode(b"".join(stream))
    assert blocks[-1].current_a == pytest.approx([0.00332] * 7)
    assert seen == {"odd_calibration": 1}


def test_a_calibration_with_half_a_pair_of_rows_is_none() -> None:
    stream = clean_stream(8)
    stream[4] = packet(4, 1, [(FINE_ZERO, 0, 0, 0), (COARSE_ZERO, 0, 0, 0)] * 3 + [(FINE_ZERO, 0, 0, 0)])
    blocks, seen = decode(b"".join(stream))
    assert [(block.first_index, block.dropped_before) for block in blocks] == [(0, 0), (21, 7)]
    assert seen == {"unknown_packet": 1}


def test_a_number_that_neither_follows_nor_is_followed_is_damage() -> None:
    stream = clean_stream(8)
    stream[5] = packet_with_sequence(stream[5], 11)
    blocks, _ = decode(b"".join(stream))
    assert [(block.first_index, len(block.ticks), block.dropped_before) for block in blocks] == [
        (0, 21, 0),
        (28, 28, 7),
    ]


@pytest.mark.parametrize("said", [40, 200])
def test_a_count_of_losses_without_time_for_them_is_damage(said: int) -> None:
    stream = clean_stream(2200, samples=15)
    body = stream[900][1:-1]
    stream[900] = frame(body[:3] + bytes([said]) + body[4:])
    blocks, unit = read_by_time(stream, np.arange(len(stream)))
    assert losses_of(blocks) == {899 * 15: 15}
    assert blocks[-1].ticks[-1] == 2200 * 15 - 1
    assert [finding.code for finding in unit.findings] == ["odd_packet"]


def test_packets_that_come_again_are_left_out() -> None:
    """A buffer that is read twice: numbers go back by three, which looks like a loss of thirteen."""
    stream = clean_stream(2200, samples=15)
    stream[900:902] = stream[897:899]
    blocks, unit = read_by_time(stream, np.arange(len(stream)))
    assert losses_of(blocks) == {900 * 15: 30}
    assert blocks[-1].ticks[-1] == 2200 * 15 - 1
    assert {finding.code for finding in unit.findings} == {"odd_packet", "resync"}


def test_a_calibration_without_span_scales_nothing() -> None:
    stream = zero_packet(0) + reference_packet(1, fine=FINE_ZERO) + b"".join(data_packets(2))
    blocks, seen = decode(stream)
    assert blocks == []
    assert seen == {"before_calibration": 14}


def test_flags_become_findings_at_their_place() -> None:
    stream = clean_stream(10)
    stream[5] = packet(5, 0, [(0, 0, 0, 0)] * 7, flags=0x30)
    stream[7] = packet(7, 0, [(0, 0, 0, 0)] * 7, flags=0x30)
    stream[9] = packet(9, 0, [(0, 0, 0, 0)] * 7, flags=0x00)
    unit = decoder()
    (block,) = unit.feed(b"".join(stream), 0)
    assert len(block.ticks) == 70
    found = {f.code: (f.severity, f.count, f.first_index, f.last_index) for f in unit.findings}
    assert found == {"over_current": ("error", 2, 21, 41), "output_off": ("warning", 1, 49, 55)}


def test_a_converter_at_its_limit_is_a_finding() -> None:
    rows = [(32_767, 0, 0, 0), (100, 0, 0, 0), (-32_768, 0, 0, 0), (32_766, 0, 0, 0)]
    unit = decoder()
    unit.feed(zero_packet(0) + reference_packet(1) + packet(2, 0, rows), 0)
    (finding,) = unit.findings
    assert (finding.code, finding.count, finding.first_index, finding.last_index) == ("clipping", 3, 0, 3)


@pytest.mark.parametrize("samples", [1, 2, 7, 12, 31])
def test_any_number_of_samples_per_packet(samples: int) -> None:
    stream = b"".join(clean_stream(20, samples=samples))
    blocks, seen = decode(stream)
    assert_same(samples_of(blocks), decode_slowly(stream).samples)
    assert len(samples_of(blocks)) == 20 * samples
    assert seen == {}


def test_other_packets_do_not_disturb() -> None:
    stream = clean_stream(8)
    stream.insert(4, frame(status_body()))
    stream.insert(6, b"\x00\x00")
    stream.insert(8, frame(b"\x77\x01\x02"))
    blocks, seen = decode(b"".join(stream))
    assert samples_of(blocks) == samples_of(decode(b"".join(clean_stream(8)))[0])
    assert seen == {"empty_packet": 2, "unknown_packet": 1}


# Losses


@pytest.mark.parametrize("lost", range(1, 16))
def test_lost_packets_are_counted(lost: int) -> None:
    stream = clean_stream(40)
    blocks, seen = decode(b"".join(stream[:12] + stream[12 + lost :]))
    assert losses_of(blocks) == {70 + 7 * lost: 7 * lost}
    assert [tick for tick, _, _ in samples_of(blocks)] == [*range(70), *range(70 + 7 * lost, 280)]
    assert seen == {}


@pytest.mark.parametrize("lost", [1, 100, 255])
def test_samples_that_the_instrument_had_no_room_for_are_counted(lost: int) -> None:
    """The sequence goes on as if nothing were missing; a byte of the packet behind the gap says it."""
    stream = clean_stream(4)
    rows = [(2 * i, 0, 0, 32_000) for i in range(7)]
    stream[4] = packet(4, 0, rows, lost=lost)
    blocks, findings = decode(b"".join(stream))
    assert losses_of(blocks) == {14 + lost: lost}
    assert blocks[-1].ticks[-1] == 27 + lost
    assert not findings


def test_a_calibration_in_the_stream_takes_the_place_of_its_rows() -> None:
    data = data_packets(4)
    stream = [
        zero_packet(0),
        reference_packet(1),
        *data[:2],
        zero_packet(4),
        *data_packets(2, first_sequence=5),
    ]
    blocks, _ = decode(b"".join(stream))
    assert [(block.first_index, len(block.ticks)) for block in blocks] == [(0, 14), (16, 14)]
    assert losses_of(blocks) == {}


def test_a_status_packet_can_end_the_stream() -> None:
    body = bytearray(58)
    body[0], body[21] = 0x10, wire.StatusBit.STREAM_ENDED | wire.StatusBit.OVER_CURRENT
    unit = decoder()
    unit.feed(b"".join(clean_stream(2)), 0)
    assert unit.ended == ""
    unit.feed(frame(bytes(body)), 0)
    assert "over-current" in unit.ended
    assert [(f.code, f.severity, f.first_index) for f in unit.findings] == [("over_current", "error", 14)]


def test_a_sample_keeps_its_number_across_losses() -> None:
    stream = clean_stream(60)
    del stream[50], stream[30:34], stream[10]
    for tick, current_a, _ in samples_of(decode(b"".join(stream))[0]):
        raw = main_reading(tick)
        zero, scale = (COARSE_ZERO, COARSE_A) if raw & 1 else (FINE_ZERO, FINE_A)
        assert current_a == pytest.approx(((raw & ~1) - zero) * scale)


@pytest.mark.parametrize("unknown", [1, 2, 15, 16, 17, 33])
@pytest.mark.parametrize("kind", ["type", "flags", "size"])
def test_samples_in_packets_of_an_unknown_kind_are_counted_as_lost(unknown: int, kind: str) -> None:
    stream = clean_stream(80)
    rows = [(0, 0, 0, 32_000)] * 7
    for i in range(20, 20 + unknown):
        strange = {
            "type": packet(i % 16, 0x55, rows),
            "flags": packet(i % 16, 0, rows, flags=0x80),
            "size": frame(b"\x77" * (len(stream[i]) - 4)),
        }
        stream[i] = strange[kind]
    blocks, seen = decode(b"".join(stream))
    assert losses_of(blocks) == {126 + 7 * unknown: 7 * unknown}
    assert [tick for tick, _, _ in samples_of(blocks)] == [*range(126), *range(126 + 7 * unknown, 560)]
    assert seen == {"unknown_packet": unknown}


@pytest.mark.parametrize("corrupted", [1, 2, 15, 16, 17, 33])
def test_corrupted_packets_are_counted_as_lost_even_if_the_sequence_wraps(corrupted: int) -> None:
    stream = clean_stream(80)
    for i in range(20, 20 + corrupted):
        stream[i] = stream[i][:-1] + bytes([stream[i][-1] ^ 0x5A])
    blocks, seen = decode(b"".join(stream))
    assert losses_of(blocks) == {126 + 7 * corrupted: 7 * corrupted}
    assert seen == {"bad_checksum": 1, "resync": 1}


def test_each_corrupted_byte_costs_its_packet_and_is_reported() -> None:
    stream = clean_stream(16)
    clean = {row[0]: row for row in samples_of(decode(b"".join(stream))[0])}
    for place in range(len(stream[8])):
        damaged = bytearray(stream[8])
        damaged[place] ^= 0x11
        blocks, seen = decode(b"".join([*stream[:8], bytes(damaged), *stream[9:]]))
        rows = samples_of(blocks)
        assert all(clean[row[0]] == row for row in rows), place
        assert len(rows) == 15 * 7, place
        assert losses_of(blocks) == {49: 7}, place
        assert seen["bad_checksum"] == 1, place


def test_each_truncation_is_reported_and_found_again() -> None:
    stream = clean_stream(16)
    clean = samples_of(decode(b"".join(stream))[0])
    for length in range(1, len(stream[8])):
        data = b"".join([*stream[:8], stream[8][:length], *stream[9:]])
        blocks, seen = decode(data)
        assert seen["bad_checksum"] >= 1, length
        assert samples_of(blocks)[-21:] == clean[-21:], length  # the end is right, and rightly numbered
        assert_same(samples_of(blocks), decode_slowly(data).samples)


def test_garbage_between_packets_is_skipped() -> None:
    rng = np.random.default_rng(3)
    stream = clean_stream(30)
    for size in (1, 10, 63, 500, 3000):
        blocks, seen = decode(b"".join(stream[:20]) + rng.bytes(size) + b"".join(stream[20:]))
        kept = {row[0] for row in samples_of(blocks)}
        assert kept >= set(range(126)), size
        assert {"bad_checksum", "resync"} & set(seen), size


# Portions, and the slow decoder


@st.composite
def damaged_stream(draw: st.DrawFn) -> bytes:
    samples = draw(st.sampled_from([1, 3, 7]))
    stream = bytearray(b"".join(clean_stream(draw(st.integers(1, 25)), samples=samples)))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(stream) - 1))
        match draw(st.sampled_from(["flip", "cut", "insert", "zero"])):
            case "flip":
                stream[place] ^= draw(st.integers(1, 255))
            case "cut":
                del stream[place : place + draw(st.integers(1, 90))]
            case "insert":
                stream[place:place] = draw(st.binary(min_size=1, max_size=40))
            case "zero":
                stream[place : place + 8] = bytes(8)
        if not stream:
            break
    return bytes(stream)


@settings(max_examples=150, deadline=None)
@given(data=damaged_stream(), cuts=st.lists(st.integers(0, 5000), max_size=12))
def test_portions_do_not_matter(data: bytes, cuts: list[int]) -> None:
    whole, seen_whole = decode(data)
    parts, seen_parts = decode(data, cuts)
    assert samples_of(parts) == samples_of(whole)
    assert losses_of(parts) == losses_of(whole)
    assert seen_parts == seen_whole


@settings(max_examples=150, deadline=None)
@given(data=damaged_stream())
def test_agrees_with_the_slow_decoder(data: bytes) -> None:
    blocks, seen = decode(data)
    slow = decode_slowly(data)
    assert_same(samples_of(blocks), slow.samples)
    assert losses_of(blocks) == slow.lost
    for code in ("recalibrated", "odd_calibration"):
        seen.pop(code, None)
    assert seen == dict(slow.seen)


def test_byte_by_byte_is_the_same() -> None:
    stream = clean_stream(12)
    stream[5] = stream[5][:20]
    data = b"".join(stream)
    assert samples_of(decode(data, list(range(len(data))))[0]) == samples_of(decode(data)[0])


def test_long_streams_of_zeros_and_noise_end_in_time() -> None:
    unit = decoder()
    assert unit.feed(bytes(2_000_000), 0) == []
    assert unit.feed(np.random.default_rng(1).bytes(300_000), 0) == []


# Losses that the sequence cannot show; see also tests/power/test_stalls.py


def read_by_time(stream: list[bytes], number: np.ndarray) -> tuple[list[Decoded], LvpmDecoder]:
    """Packets of 15 samples, each with its place in time, read every 50 ms."""
    unit = decoder()
    read = (number * 15 / 5000 / 0.05).astype(int)
    blocks: list[Decoded] = []
    for k in np.unique(read):
        here = np.flatnonzero(read == k)
        part = b"".join(stream[i] for i in here)
        if number[here[0]] > number[here[0] - 1] + 1:
            unit.feed(b"", int(number[here[0]] * 15 / 5000 * 1e9))
        blocks += unit.feed(part, int(number[read == k][-1] * 15 / 5000 * 1e9))
    return blocks + unit.finish(), unit


@pytest.mark.parametrize("lost", [16, 32, 48])
def test_a_loss_of_a_multiple_of_16_packets_is_noticed(lost: int) -> None:
    stream = clean_stream(2200, samples=15)
    del stream[500 : 500 + lost]
    number = np.arange(len(stream)) + lost * (np.arange(len(stream)) >= 500)
    blocks, unit = read_by_time(stream, number)
    assert sum(losses_of(blocks).values()) == lost * 15
    (finding,) = unit.findings
    assert (finding.code, finding.severity, finding.count) == ("unplaced_gap", "error", lost * 15)
    assert finding.touches(498 * 15, (498 + lost) * 15)
    assert not finding.touches(0, 400 * 15)
    assert not finding.touches(800 * 15, 2200 * 15)
    assert blocks[-1].ticks[-1] == 2200 * 15 - 1


def test_samples_faster_than_time_are_a_finding() -> None:
    stream = clean_stream(2200, samples=15)
    number = np.arange(len(stream)) - 40 * (np.arange(len(stream)) >= 500)
    _, unit = read_by_time(stream, np.maximum.accumulate(number))
    assert [finding.code for finding in unit.findings] == ["surplus"]


def test_a_calibration_without_a_span_in_the_middle_loses_what_follows_it() -> None:
    """Its zero and reference read the same, so that samples cannot be scaled until the next pair."""
    data = data_packets(6)  # sequence 2 to 7
    spoilt = [packet(i, 1, [(FINE_REF, 0, 0, 0), (COARSE_REF, 0, 0, 0)]) for i in (4, 5)]
    mended = [zero_packet(8), zero_packet(9)]
    stream = [zero_packet(0), reference_packet(1), *data[:2], *spoilt]
    stream += [packet_with_sequence(data[2], 6), packet_with_sequence(data[3], 7), *mended]
    stream += [packet_with_sequence(data[4], 10), packet_with_sequence(data[5], 11)]
    unit = decoder()
    blocks = unit.feed(b"".join(stream), 0)
    assert [(block.first_index, len(block.ticks), block.dropped_before) for block in blocks] == [
        (0, 14, 0),
        (36, 14, 14),
    ]
    voltages = [(32_000 + i & ~3) * STEP_V for i in (*range(14), *range(28, 42))]
    assert [row[2] for row in samples_of(blocks)] == pytest.approx(voltages)
    (bad,) = [finding for finding in unit.findings if finding.code == "bad_calibration"]
    assert (bad.severity, bad.count, bad.first_index, bad.last_index) == ("error", 14, 18, 31)
    slow = decode_slowly(b"".join(stream))
    assert slow.lost == losses_of(blocks)
    assert_same(samples_of(blocks), slow.samples)


def packet_with_sequence(whole: bytes, sequence: int) -> bytes:
    return frame(bytes([whole[1] & 0xF0 | sequence % 16]) + whole[2:-1])
