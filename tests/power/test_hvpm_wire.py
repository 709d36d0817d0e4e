from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulefleet.errors import MeterProtocolError
from power.model import Severity
from power.wire import hvpm_control as control
from power.wire.decoder import Decoded
from power.wire.hvpm import HvpmDecoder
from power.wire.hvpm_control import HardwareModel, Opcode
from power.wire.hvpm_packets import find_confirmed, find_packets, trim_packet
from tests.power.hvpm_streams import (
    INVALID,
    REFERENCE,
    ZERO,
    SlowDecoder,
    StreamMaker,
    observation,
    packet,
    scale_of,
)


def maker(seed: int = 1, **how: object) -> StreamMaker:
    return StreamMaker(np.random.default_rng(seed), **how)  # type: ignore[arg-type]


def decode(data: bytes, model: str = "hv", channel: str = "main", portions: list[int] | None = None):
    decoder = HvpmDecoder(scale_of(model, channel))
    out: list[Decoded] = []
    position = 0
    for size in [*(portions or []), len(data)]:
        out += decoder.feed(data[position : position + size], 0)
        position += size
    return out, decoder


def rows(decoded: list[Decoded]) -> list[tuple[int, float, float, int]]:
    found = []
    for part in decoded:
        assert (np.diff(part.ticks) == 1).all()
        assert part.first_index == part.ticks[0]
        lost = [part.dropped_before] + [0] * (len(part.ticks) - 1)
        found += list(
            zip(part.ticks.tolist(), part.current_a.tolist(), part.voltage_v.tolist(), lost, strict=True)
        )
    return found


def codes(decoder: HvpmDecoder) -> dict[str, int]:
    return {finding.code: finding.count for finding in decoder.findings}


# Clean streams, against the slow decoder


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    model=st.sampled_from(["hv", "lv"]),
    channel=st.sampled_from(["main", "usb", "aux"]),
    sizes=st.sampled_from([(3,), (1, 2, 3), (1,), (2, 3)]),
    every=st.integers(4, 60),
    drops=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 30_000)), max_size=4),
    portions=st.lists(st.integers(0, 300), max_size=60),
)
def test_equals_the_slow_decoder(seed, model, channel, sizes, every, drops, portions) -> None:
    stream = maker(seed, model=model, sizes=sizes, calibration_every=every)
    stream.add(6 * every)
    for count, drop in drops:
        stream.add(1, drop=drop)
        stream.add(count)
    stream.finish()
    whole, _ = decode(stream.data, model, channel)
    parts, decoder = decode(stream.data, model, channel, portions)
    expected = SlowDecoder(model, channel).decode(stream.data)
    assert rows(whole) == rows(parts)
    assert len(expected) > 0
    assert [(r[0], r[3]) for r in rows(whole)] == [(r[0], r[3]) for r in expected]
    np.testing.assert_allclose(
        [r[1:3] for r in rows(whole)], [r[1:3] for r in expected], rtol=1e-12, atol=1e-15
    )
    assert set(codes(decoder)) <= {"calibrating", "clipping", "output_off"}


def test_a_long_stream_of_mixed_packets_equals_the_slow_decoder() -> None:
    stream = maker(3)
    stream.add(4000)  # more than one window of the chain search
    stream.finish()
    whole, _ = decode(stream.data)
    assert len(stream.data) > 131_072
    expected = SlowDecoder("hv").decode(stream.data)
    assert [r[0] for r in rows(whole)] == [r[0] for r in expected]
    np.testing.assert_allclose([r[1] for r in rows(whole)], [r[1] for r in expected], rtol=1e-12, atol=1e-15)


def test_known_values() -> None:
    """Worked by hand from the formulas of the protocol's description."""
    calibration = [
        observation([3000, 3000] * 3 + [0, 0], ZERO),
        observation([36000, 36000] * 3 + [0, 0], REFERENCE),
    ]
    fine = observation([3000, 19515, 0, 0, 0, 0, 16_000, 0], 0)
    coarse = observation([19_504, 64_000, 0, 0, 0, 0, 16_000, 0], 0)
    packets = [packet(calibration, i, 0) for i in range(5)] + [packet([fine, coarse], 5, 0)]
    (part,), _ = decode(b"".join(packets))
    # fine: zero 3000 + 15, span 36000 - 3015; coarse: zero 3000 - 7, span 36000 - 2993
    assert part.current_a[0] == pytest.approx(36.5e-3 * (19_515 - 3015) / 32_985, rel=1e-12)
    assert part.current_a[1] == pytest.approx(6.4 * (19_504 - 2993) / 33_007, rel=1e-12)
    assert part.voltage_v == pytest.approx([4.0, 4.0])
    assert part.ticks.tolist() == [10, 11]


# Calibration


def test_samples_wait_for_five_calibrations() -> None:
    stream = maker(5, sizes=(1,), calibration_every=10)
    stream.add(41)
    none, decoder = decode(stream.data)
    assert none == []
    assert codes(decoder) == {"calibrating": 32}
    (finding,) = decoder.findings
    assert finding.severity is Severity.INFO
    stream.add(2)  # the fifth reference and one measurement
    (part,), _ = decode(stream.data)
    assert part.first_index == 42
    assert part.dropped_before == 0


def test_calibration_is_no_loss_but_ends_a_block() -> None:
    stream = maker(6, sizes=(3,), calibration_every=30)
    stream.add(100)
    parts, decoder = decode(stream.data)
    assert [part.dropped_before for part in parts] == [0] * len(parts)
    assert {b.first_index - a.ticks[-1] for a, b in pairwise(parts)} == {3}
    assert codes(decoder).keys() == {"calibrating"}


def test_recalibration_is_followed_and_noted() -> None:
    def pair(shift: int) -> list[bytes]:
        zero, reference = 3000 + shift, 36_000 + 2 * shift
        return [observation([zero] * 6 + [0, 0], ZERO), observation([reference] * 6 + [0, 0], REFERENCE)]

    def sample(amperes: float, shift: int) -> bytes:
        zero = 3000 + shift - 7
        return observation(
            [round(zero + amperes / 6.4 * (36_000 + 2 * shift - zero)), 65_535] * 3 + [0, 0], 0
        )

    packets = [packet([*pair(0), sample(2.0, 0)], i, 0) for i in range(6)]
    packets += [packet([*pair(300), sample(2.0, 300)], i, 0) for i in range(6, 12)]
    parts, decoder = decode(b"".join(packets))
    current = np.concatenate([part.current_a for part in parts])
    assert current[:2] == pytest.approx(2.0, abs=2e-4)
    assert current[-2:] == pytest.approx(2.0, abs=2e-4)
    assert codes(decoder)["recalibrated"] >= 2


def test_equal_zero_and_reference_give_no_sample() -> None:
    # The coarse reference equals its zero once the unit's zero offset of -7 is applied.
    zero = observation([3000] * 8, ZERO)
    reference = observation([2993, 36_000, 0, 0, 0, 0, 0, 0], REFERENCE)
    packets = [packet([zero, reference], i, 0) for i in range(5)]
    packets.append(packet([observation([4000] * 8, 0)] * 2, 5, 0))
    none, decoder = decode(b"".join(packets))
    assert none == []
    assert codes(decoder) == {"bad_calibration": 2}


# The drop counter


@pytest.mark.parametrize("sizes", [(3,), (1, 2, 3)])
def test_drop_counter_wraps(sizes) -> None:
    stream = maker(8, sizes=sizes)
    stream.dropped = 65_000
    stream.add(3000)  # beyond the first second
    before = stream.made
    stream.add(1, drop=1000)
    stream.add(20)
    stream.finish()
    parts, decoder = decode(stream.data)
    (gap,) = [part for part in parts if part.dropped_before]
    assert gap.dropped_before == 1000
    assert 0 <= gap.first_index - 1000 - before <= 2  # a calibration may come first
    assert int(parts[-1].ticks[-1]) == stream.made + 1000 - 1
    assert "drop_counter_fell" not in codes(decoder)


def test_a_counter_at_its_end_makes_all_behind_it_an_error() -> None:
    """Firmware 25 to 32 stops counting at 65535."""
    stream = maker(8, sizes=(3,))
    stream.dropped = 65_000
    stream.add(3000)  # beyond the first second
    stream.add(1, drop=535)
    stream.add(20)
    stream.finish()
    parts, decoder = decode(stream.data)
    (full,) = [finding for finding in decoder.findings if finding.code == "drop_counter_full"]
    assert full.severity == "error"
    assert not full.touches(0, 8000)
    assert full.touches(int(parts[-1].ticks[-1]), int(parts[-1].ticks[-1]))


def test_no_count_at_the_start_is_not_a_loss() -> None:
    stream = maker(9, sizes=(3,), calibration_every=12)
    stream.add(80)
    for i in range(30):
        stream.packets[i] = b"\xff\xff" + stream.packets[i][2:]
    parts, decoder = decode(stream.data)
    assert sum(part.dropped_before or 0 for part in parts) == 0
    assert int(parts[-1].ticks[-1]) == stream.made - 1
    assert codes(decoder).keys() == {"calibrating"}


def test_a_loss_in_the_first_second_still_counts() -> None:
    stream = maker(10, sizes=(3,), calibration_every=12)
    stream.add(60)
    stream.add(1, drop=25)
    stream.add(10)
    parts, _ = decode(stream.data)
    assert sum(part.dropped_before or 0 for part in parts) == 25


def test_a_counter_that_falls_is_no_loss_but_an_error() -> None:
    stream = maker(11, sizes=(3,))
    stream.dropped = 500
    stream.add(2000)
    stream.add(1, drop=-100)
    stream.add(20)
    parts, decoder = decode(stream.data)
    assert sum(part.dropped_before or 0 for part in parts) == 0
    assert int(parts[-1].ticks[-1]) == stream.made - 1
    (finding,) = [f for f in decoder.findings if f.code == "drop_counter_fell"]
    assert finding.severity is Severity.ERROR


# Flags and sample types


def test_flags_become_findings() -> None:
    stream = maker(12, sizes=(3,), calibration_every=12)
    stream.add(60)
    first = stream.made
    stream.add(2, flags=0x30)
    stream.add(5, flags=0x00)
    stream.add(5)
    _, decoder = decode(stream.data)
    found = {f.code: f for f in decoder.findings}
    assert found["over_current"].severity is Severity.ERROR
    assert (found["over_current"].count, found["over_current"].first_index) == (2, first)
    assert (found["output_off"].count, found["output_off"].last_index) == (5, first + 6 + 14)
    _, usb = decode(stream.data, channel="usb")
    assert "output_off" not in codes(usb)


def test_a_sample_that_the_unit_calls_invalid_is_lost() -> None:
    stream = maker(13, sizes=(1,), calibration_every=10)
    stream.add(65)
    stream.add(2, kind=INVALID)
    stream.add(2)
    parts, decoder = decode(stream.data)
    assert parts[-1].dropped_before == 2
    assert parts[-1].first_index == 67
    assert codes(decoder)["invalid_sample"] == 2


def test_clipping_is_noted() -> None:
    calibration = [observation([3000] * 8, ZERO), observation([36000] * 8, REFERENCE)]
    packets = [packet(calibration, i, 0) for i in range(5)]
    packets.append(packet([observation([65_535, 65_535] * 4, 0), observation([9000, 0] * 4, 0)], 5, 0))
    _, decoder = decode(b"".join(packets))
    assert codes(decoder)["clipping"] == 2


# Damage


@pytest.mark.parametrize("lost", [1, 7, 15])
def test_lost_packets_are_counted(lost) -> None:
    stream = maker(14, sizes=(3,), calibration_every=12)
    stream.add(60)
    stream.add(30)
    last = stream.made - 1
    del stream.packets[70 : 70 + lost]
    parts, decoder = decode(stream.data)
    assert codes(decoder)["lost_packets"] == lost
    assert int(parts[-1].ticks[-1]) == last
    assert sum(part.dropped_before or 0 for part in parts) == 3 * lost


@pytest.mark.parametrize("count", [0, 4, 255])
def test_an_impossible_header_is_left_out_and_its_samples_counted(count) -> None:
    stream = maker(15, sizes=(3,), calibration_every=12)
    stream.add(100)
    broken = bytearray(stream.packets[70])
    broken[3] = count
    stream.packets[70] = bytes(broken)
    parts, decoder = decode(stream.data)
    assert codes(decoder)["corrupt_bytes"] == 58
    assert int(parts[-1].ticks[-1]) == stream.made - 1
    assert sum(part.dropped_before or 0 for part in parts) == 3
    everything, _ = decode(stream.data, portions=[1] * len(stream.data))
    assert rows(everything) == rows(parts)


@pytest.mark.parametrize(("wrong", "right"), [(2, 3), (1, 3), (3, 2), (3, 1)])
def test_a_wrong_number_of_observations_is_found_out(wrong, right) -> None:
    stream = maker(22, sizes=(right,), calibration_every=12)
    stream.add(100)
    clean = {r[0]: r for r in rows(decode(stream.data)[0])}
    broken = bytearray(stream.packets[70])
    broken[3] = wrong
    stream.packets[70] = bytes(broken)
    parts, decoder = decode(stream.data)
    found = rows(parts)
    assert codes(decoder)["corrupt_bytes"] > 0
    assert found[-1][0] == stream.made - 1
    assert found[-20:] == [clean[r[0]] for r in found[-20:]]


def test_garbage_before_the_first_packet() -> None:
    stream = maker(17, sizes=(3,), calibration_every=12)
    stream.add(60)
    parts, decoder = decode(b"\x03" * 100 + stream.data)
    assert codes(decoder)["corrupt_bytes"] >= 97
    assert int(parts[-1].ticks[-1]) - int(parts[0].ticks[0]) > 100


def test_only_garbage_gives_nothing_and_keeps_little() -> None:
    decoder = HvpmDecoder(scale_of("hv"))
    rng = np.random.default_rng(0)
    for _ in range(50):
        assert decoder.feed(rng.bytes(5000), 0) == []
    assert len(decoder._rest) < 300


def test_two_decoders_do_not_mix() -> None:
    one, other = maker(18, sizes=(3,)), maker(19, model="lv", sizes=(2,))
    one.add(200)
    other.add(200)
    a, b = HvpmDecoder(scale_of("hv")), HvpmDecoder(scale_of("lv"))
    mixed_a: list[Decoded] = []
    mixed_b: list[Decoded] = []
    for p, q in zip(one.packets, other.packets, strict=True):
        mixed_a += a.feed(p, 0)
        mixed_b += b.feed(q, 0)
    assert rows(mixed_a) == rows(decode(one.data)[0])
    assert rows(mixed_b) == rows(decode(other.data, "lv")[0])


def test_a_packet_of_a_new_size_waits_for_the_header_behind_it() -> None:
    stream = maker(21, sizes=(3,), calibration_every=12)
    stream.add(61)
    stream.sizes = (2,)
    stream.add(2)
    data = stream.data[: -len(stream.packets[-1])]
    held = rows(decode(data)[0])
    assert held[-1][0] == 61 * 3 - 1
    confirmed = rows(decode(data + stream.packets[-1][:4])[0])
    assert confirmed[-1][0] == 61 * 3 + 1


# Framing


def test_trimming_a_padded_read() -> None:
    one = packet([observation([1] * 8, 0)], 0, 0)
    assert trim_packet(one + bytes(64 - len(one))) == one
    assert trim_packet(one) == one
    assert trim_packet(b"\x00\x00\x20\x04" + bytes(60)) == b""
    assert trim_packet(one[:-1]) == trim_packet(b"\x00") == b""


def test_packets_are_found_where_they_begin() -> None:
    stream = maker(20)
    stream.add(50)
    data = np.frombuffer(stream.data, np.uint8)
    starts = np.cumsum([0, *map(len, stream.packets)]).tolist()
    found = find_packets(data, 0)
    assert [*found.start.tolist(), found.end] == starts[:-1]  # what follows confirms a packet
    last = find_packets(data, found.end)
    assert [*last.start.tolist(), last.end] == starts[-2:]
    assert find_confirmed(data, 1) == (len(stream.packets[0]), True)
    assert len(find_packets(data[:-1], found.end)) == 0
    assert len(find_packets(data, len(data))) == 0


@pytest.mark.parametrize("sizes", [(1,), (2,), (3,), (1, 2, 3)])
def test_no_packet_is_overlooked(sizes) -> None:
    """Whatever the search skips at first, it comes to every packet in turn."""
    stream = maker(23, sizes=sizes)
    stream.add(6000)  # more than one window even of the smallest
    data = np.frombuffer(stream.data, np.uint8)
    starts: list[int] = []
    found = find_packets(data, 0)
    while len(found):
        starts += found.start.tolist()
        found = find_packets(data, found.end)
    assert starts == np.cumsum([0, *map(len, stream.packets[:-1])]).tolist()


# Control transfers


def test_opcodes_are_those_of_the_protocol() -> None:
    assert Opcode.MAIN_VOLTAGE == 0x41
    assert Opcode.MAIN_FINE_ZERO_OFFSET == 0x25
    assert Opcode.START_STATUS == 0xC4
    assert len(Opcode) == 32


def test_a_value_is_split_as_the_vendor_does() -> None:
    transfer = control.encode_set(Opcode.MAIN_VOLTAGE, control.voltage_word(4.2))
    word = round(4.2 * 1048576)
    assert transfer.data == struct.pack("<I", word)
    assert transfer.w_value == word & 0xFFFF
    assert transfer.w_index == 0x41 | (word >> 16) << 8
    assert control.encode_set(Opcode.MAIN_FINE_ZERO_OFFSET, -2).data == b"\xfe\xff\xff\xff"


def test_replies_are_cut_and_signed() -> None:
    assert control.decode_value(Opcode.MAIN_FINE_RESISTOR_OFFSET, 0xFE) == -2
    assert control.decode_value(Opcode.MAIN_FINE_ZERO_OFFSET, 0xFFFFFFFE) == -2
    assert control.decode_value(Opcode.MAIN_FINE_SCALE, 0x12348E94) == 0x8E94
    assert control.decode_value(Opcode.MAIN_VOLTAGE, 0x00400000) == 4 * control.VOLT
    with pytest.raises(MeterProtocolError, match="3 bytes"):
        control.decode_word(b"\0\0\0")


@pytest.mark.parametrize("model", list(HardwareModel))
@pytest.mark.parametrize("amperes", [0.0, 0.5, 4.6, 8.0])
def test_current_limits_round_trip(model, amperes) -> None:
    kept_a = control.current_limit_a(model, control.current_limit_raw(model, amperes))
    assert amperes - 8 / 1023 < kept_a <= amperes + 1e-9, "a step below at most, and never above"


def test_current_limits_are_those_of_the_vendor() -> None:
    assert control.current_limit_raw(HardwareModel.HVPM, 15.625) == 0xFFFF
    assert control.current_limit_raw(HardwareModel.HVPM, 0) == 0x0F00
    assert control.current_limit_raw(HardwareModel.LVPM, 8) == 0
    assert control.current_limit_raw(HardwareModel.LVPM, 0) == 1023


def test_temperature_and_dac_words() -> None:
    assert control.temperature_limit_raw(60.5) == 60 << 8 | 0x80
    assert control.temperature_limit_c(60 << 8 | 0x80) == 60.5
    assert control.dac_calibration_is_plausible(0xE000, 0xC800)
    assert not control.dac_calibration_is_plausible(0xD000, 0xC800)
    assert not control.dac_calibration_is_plausible(0xE000, 0xD000)
