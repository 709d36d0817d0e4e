import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from power.model import Severity
from power.wire.ina219.decoder import Ina219Decoder
from power.wire.ina219.frames import (
    Counters,
    Flags,
    PongLine,
    Refused,
    counters_line,
    crc16,
    data_line,
    header_line,
    parse_line,
    pong_line,
    seal,
)
from power.wire.ina219.registers import Config, adc_setting, calibration_word
from tests.power.ina219_runs import PERIOD_US, SHUNT_OHM, codes, columns, conversion, decode, header, run

LATE_US = 532 + 266
"""From the middle of a shunt conversion to the end of the bus conversion behind it, in these runs."""


def test_crc_is_ccitt_false() -> None:
    assert crc16(b"123456789") == 0x29B1  # the catalogue's check value
    assert crc16(b"") == 0xFFFF


def test_config_word_of_the_data_sheet() -> None:
    power_on = Config.from_word(0x399F)
    assert (power_on.bus_range_v, power_on.pga, power_on.mode) == (32, 8, 7)
    assert power_on.pair_us == 2 * 532
    assert power_on.shunt_full_scale_v == pytest.approx(0.32)
    assert all(Config.from_word(word).word() == word for word in range(0x4000))


@pytest.mark.parametrize(
    ("code", "milliseconds"),
    [
        *[(0, 0.084), (1, 0.148), (2, 0.276), (3, 0.532), (8, 0.532), (9, 1.06), (10, 2.13)],
        *[(11, 4.26), (12, 8.51), (13, 17.02), (14, 34.05), (15, 68.10)],
    ],
)
def test_conversion_times_of_the_data_sheet(code: int, milliseconds: float) -> None:
    assert adc_setting(code).conversion_us == pytest.approx(milliseconds * 1000, abs=5)


def test_calibration_word() -> None:
    assert calibration_word(1e-4, 0.1) == 4096
    assert calibration_word(1e-3, 0.002) == 20480  # SBOS448G section 9.2.2.1


@pytest.mark.parametrize(
    ("shunt", "bus", "late_us"),
    [(0x3, 0x3, 532 + 266), (0xA, 0x3, 532 + 1064), (0xF, 0x3, 532 + 34_048), (0x0, 0x0, 84 + 42)],
)
def test_a_reading_belongs_to_the_middle_of_its_average(shunt: int, bus: int, late_us: int) -> None:
    word = Config(32, 8, adc_setting(bus), adc_setting(shunt), 7).word()
    lines = [header_line(header(config=word)), data_line(0, 100_000, 10, 8, Flags.CNVR)]
    assert columns(decode(b"".join(lines))[0])[1].tolist() == [100_000 - late_us]


def test_a_clean_run() -> None:
    blocks, decoder = decode(b"".join(run(5000)))
    index, tick, current_a, voltage_v = columns(blocks)
    n = np.arange(5000)
    assert index.tolist() == n.tolist()
    assert tick.tolist() == ((n + 1) * PERIOD_US - LATE_US).tolist()
    assert current_a == pytest.approx(((n * 7919) % 60_001 - 30_000) * 10e-6 / SHUNT_OHM)
    assert voltage_v == pytest.approx((n * 13) % 6000 * 4e-3)
    assert [block.dropped_before for block in blocks] == [0] * len(blocks)
    assert decoder.findings == ()


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_portions_do_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lines = run(200)
    for _ in range(20):  # faults of all kinds, in the same places for every way of cutting
        i = int(rng.integers(1, len(lines)))
        lines[i] = [
            b"",
            lines[i] * 2,
            lines[i][:-9],
            lines[i].replace(b",", b";", 1),
            b"x" * int(rng.integers(1, 2000)),
            counters_line(Counters(i, 0, 0, 0)),
            lines[max(1, i - 5)],
            b"\n\r\n",
        ][int(rng.integers(0, 8))]
    data = b"".join(lines)
    whole, first = decode(data)
    for portion in (29, 100, 1000):
        parts, decoder = decode(data, portion)
        for a, b in zip(columns(whole), columns(parts), strict=True):
            assert np.array_equal(a, b)
        assert sum(b.dropped_before or 0 for b in parts) == sum(b.dropped_before or 0 for b in whole)
        assert codes(decoder) == codes(first)


def test_one_byte_at_a_time() -> None:
    data = b"".join(run(20))
    blocks, decoder = decode(data, 1)
    assert columns(blocks)[0].tolist() == list(range(20))
    assert decoder.findings == ()


def test_losses_are_counted() -> None:
    lines = run(1000)
    for i in (1, 11, 12, 13, 500):  # the first, three in a row, one alone
        lines[i] = b""
    blocks, decoder = decode(b"".join(lines))
    assert [(b.first_index, b.dropped_before) for b in blocks] == [(1, 1), (13, 3), (500, 1)]
    assert sum(len(b.ticks) for b in blocks) == 995
    assert decoder.findings == ()  # nothing is wrong with the bytes; the pipeline notes the gap


def test_a_wrong_checksum_is_a_finding_and_a_gap() -> None:
    lines = run(100)
    lines[51] = lines[51].replace(b",", b";", 1)
    lines[61] = lines[61][:3] + bytes([lines[61][3] ^ 1]) + lines[61][4:]
    blocks, decoder = decode(b"".join(lines))
    assert [(b.first_index, b.dropped_before) for b in blocks] == [(0, 0), (51, 1), (61, 1)]
    # A broken "D," is a line of another kind, whose checksum is as wrong.
    assert codes(decoder) == {"bad_checksum": 2}


def test_a_truncated_line_takes_its_successor_with_it() -> None:
    lines = run(100)
    lines[51] = lines[51][:10]
    blocks, decoder = decode(b"".join(lines))
    assert [b.dropped_before for b in blocks] == [0, 2]
    assert sum(codes(decoder).values()) == 1


def test_the_clock_wraps_after_71_minutes() -> None:
    start_us = (1 << 32) - 100 * PERIOD_US
    blocks, decoder = decode(b"".join(run(1000, start_us=start_us)))
    tick = columns(blocks)[1]
    assert np.diff(tick).tolist() == [PERIOD_US] * 999
    assert tick[-1] > 1 << 32
    assert decoder.findings == ()


def test_a_gap_longer_than_a_turn_of_the_clock() -> None:
    """Two hours lost at 940 Hz: the number tells how often the clock wrapped meanwhile."""
    lost = 2 * 3600 * 1_000_000 // PERIOD_US
    lines = [*run(10), conversion(lost), conversion(lost + 1)]
    blocks, _ = decode(b"".join(lines))
    assert blocks[-1].dropped_before == lost - 10
    assert blocks[-1].ticks.tolist() == [(lost + i) * PERIOD_US - LATE_US for i in (1, 2)]


def test_the_number_wraps_too() -> None:
    """53 days in leaps of two hours, then across the end of the 32-bit number."""
    leap = 8_000_000
    leaps = (1 << 32) // leap
    lines = [header_line(header()), *(conversion(i * leap) for i in range(leaps + 1))]
    lines += [conversion((1 << 32) - 3 + i) for i in range(6)]
    blocks, decoder = decode(b"".join(lines))
    index, tick, _, _ = columns(blocks)
    assert index[-6:].tolist() == [(1 << 32) - 3 + i for i in range(6)]
    assert tick.tolist() == ((index + 1) * PERIOD_US - LATE_US).tolist()
    assert decoder.findings == ()


def test_lines_that_come_twice_are_used_once() -> None:
    lines = run(100)
    data = b"".join([*lines[:51], lines[50], lines[50], *lines[51:]])
    blocks, decoder = decode(data)
    assert columns(blocks)[0].tolist() == list(range(100))
    assert codes(decoder) == {"repeated_line": 2}


def test_bytes_that_are_delivered_twice_do_not_end_the_run() -> None:
    lines = run(200)
    blocks, decoder = decode(b"".join([*lines[:101], *lines[80:101], *lines[101:]]))
    assert columns(blocks)[0].tolist() == list(range(200))
    assert codes(decoder) == {"out_of_order": 20, "repeated_line": 1}
    assert not decoder.restarted


def test_one_line_with_a_number_far_ahead_does_not_make_the_rest_old() -> None:
    lines = run(100)
    lines.insert(50, data_line(1_000_000, 60 * PERIOD_US, 1, 8, Flags.CNVR))
    blocks, decoder = decode(b"".join(lines))
    assert columns(blocks)[0].tolist() == list(range(100))
    assert codes(decoder) == {"out_of_order": 1}


def test_a_leap_that_its_successors_confirm() -> None:
    """A firmware whose clock stopped for a minute: strange, but it goes on from there."""
    leap = [data_line(50 + i, 60_000_000 + i * PERIOD_US, 100, 8, Flags.CNVR) for i in range(10)]
    blocks, decoder = decode(b"".join([*run(50), *leap]))
    index, tick, _, _ = columns(blocks)
    assert index.tolist() == [*range(50), *range(51, 60)]
    assert tick[50] == 60_000_000 + PERIOD_US - LATE_US
    assert codes(decoder) == {"out_of_order": 1, "clock_jump": 1}


def test_a_restart_ends_what_can_be_placed_in_time() -> None:
    again = [header_line(header(run=0)), header_line(header(run=1)), *(conversion(i) for i in range(50))]
    blocks, decoder = decode(b"".join([*run(100), *again]))
    assert columns(blocks)[0].tolist() == list(range(100))
    assert decoder.restarted
    assert codes(decoder) == {"mcu_restart": 1, "after_restart": 50}
    assert decoder.findings[0].severity is Severity.ERROR


def test_a_restart_without_a_header_is_noticed() -> None:
    blocks, decoder = decode(b"".join([*run(1000), *(conversion(i) for i in range(60))]))
    assert columns(blocks)[0].tolist() == list(range(1000))
    assert decoder.restarted


def test_a_repeated_header_changes_nothing() -> None:
    lines = run(100)
    blocks, decoder = decode(b"".join([*lines[:50], header_line(header(t_us=53_200)), *lines[50:]]))
    assert columns(blocks)[0].tolist() == list(range(100))
    assert decoder.findings == ()


def test_the_header_at_boot_gives_way_to_that_of_the_run() -> None:
    _, decoder = decode(header_line(header(run=0, rshunt_uohm=10_000)) + b"".join(run(10)))
    assert decoder.header == header()


def test_without_a_header_there_are_no_samples() -> None:
    blocks, decoder = decode(b"".join(run(10)[1:]))
    assert blocks == []
    assert codes(decoder) == {"no_header": 10}


def test_readings_that_are_none_are_gaps() -> None:
    lines = run(100)
    lines[11] = conversion(10, flags=Flags.I2C_ERROR, shunt=0)
    lines[21] = conversion(20, flags=Flags.CNVR | Flags.CAL_LOST, shunt=0)
    lines[22] = conversion(21, flags=Flags.CNVR | Flags.RESET)
    lines[31] = conversion(30, flags=0)
    lines[41] = conversion(40, flags=Flags.CNVR | Flags.OVF)
    blocks, decoder = decode(b"".join(lines))
    assert [(b.first_index, b.dropped_before) for b in blocks] == [(0, 0), (11, 1), (21, 1)]
    assert codes(decoder) == {
        "i2c_error": 1,
        "cal_lost": 1,
        "chip_reset": 1,
        "stale_conversion": 1,
        "math_overflow": 1,
    }
    assert {f.code: f.first_index for f in decoder.findings}["chip_reset"] == 21


@pytest.mark.parametrize(("config", "full_scale"), [(0x399F, 32_000), (0x019F, 4_000), (0x099F, 8_000)])
def test_a_current_beyond_the_range_is_an_error(config: int, full_scale: int) -> None:
    lines = [header_line(header(config=config))]
    lines += [conversion(i, shunt=value) for i, value in enumerate([full_scale - 1, full_scale, -full_scale])]
    _, decoder = decode(b"".join(lines))
    clipping = {f.code: f for f in decoder.findings}["clipping"]
    assert (clipping.count, clipping.first_index, clipping.last_index) == (2, 1, 2)
    assert clipping.severity is Severity.ERROR


def test_a_bus_voltage_beyond_the_range_is_an_error() -> None:
    lines = [header_line(header(config=0x199F)), data_line(0, PERIOD_US, 10, 4000 << 3, Flags.CNVR)]
    assert codes(decode(b"".join(lines))[1]) == {"bus_clipping": 1}


def test_sync_edges() -> None:
    levels = [0, 0, 1, 1, 1, 0, 1]
    lines = run(0) + [
        conversion(i, flags=Flags.CNVR | (Flags.SYNC if level else 0)) for i, level in enumerate(levels)
    ]
    for portion in (1 << 20, 50):
        _, decoder = decode(b"".join(lines), portion)
        assert [(edge.tick // PERIOD_US - 1, edge.high) for edge in decoder.sync_edges] == [
            (2, True),
            (5, False),
            (6, True),
        ]


def test_overruns_say_why_samples_are_missing() -> None:
    lines = run(10)
    lines[5:5] = [counters_line(Counters(3, 0, 0, 0)), counters_line(Counters(8, 1, 2, 3))]
    _, decoder = decode(b"".join(lines))
    assert codes(decoder) == {"mcu_overrun": 8}
    assert decoder.counters == Counters(8, 1, 2, 3)


def test_garbage_without_a_newline_does_not_grow_memory() -> None:
    decoder = Ina219Decoder()
    decoder.feed(b"".join(run(10)), 0)
    garbage = b"\x00\xff" * 50_000
    tracemalloc.start()
    for _ in range(200):
        decoder.feed(garbage, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000  # 20 MB went by
    # The line ends where a newline comes, and the next is read again.
    blocks = decoder.feed(b"\n" + conversion(10), 0)
    assert blocks[0].first_index == 10
    assert codes(decoder) == {"overlong_line": 1}


@given(st.binary(max_size=3000))
@settings(max_examples=200, deadline=None)
def test_no_bytes_crash_it(data: bytes) -> None:
    blocks = decode(b"".join(run(3)) + b"\n" + data)[0]
    assert sum(len(block.ticks) for block in blocks) >= 3  # nor does it take back what was there
    decode(data)


@pytest.mark.parametrize(
    "line",
    [
        b"D,4294967296,0,0,0,2",  # number beyond 32 bits
        b"D,0,4294967296,0,0,2",
        b"D,0,0,32768,0,2",
        b"D,0,0,-32769,0,2",
        b"D,0,0,0,65536,2",
        b"D,0,0,0,0,100",
        b"D,0,0,0,0,g",
        b"D,0,0,--1,0,2",
        b"D,0,0,-,0,2",
        b"D,,0,0,0,2",
        b"D,0,0,0,0",
        b"D,0,0,0,0,2,0",
        b"D,0,0,0x1,0,2",
        b"D,0,0,0,0,f",
        b"D,+1,0,0,0,2",
    ],
)
def test_a_right_checksum_does_not_make_a_right_line(line: bytes) -> None:
    blocks, decoder = decode(header_line(header()) + seal(line))
    assert blocks == []
    assert codes(decoder) == {"malformed_line": 1}


def test_extreme_values_are_read() -> None:
    line = data_line(0, PERIOD_US, -32768, 0xFFFF, 0x7B)
    blocks, _ = decode(header_line(header()) + line)
    assert blocks == []  # CAL_LOST is among the flags
    blocks, _ = decode(header_line(header()) + data_line(0, PERIOD_US, -32768, 0xFFFF, 0x73))
    assert blocks[0].current_a.tolist() == pytest.approx([-3.2768])
    assert blocks[0].voltage_v.tolist() == pytest.approx([8191 * 4e-3])


def test_carriage_returns_are_let_through() -> None:
    data = b"".join(line.replace(b"\n", b"\r\n") for line in run(20))
    blocks, decoder = decode(data)
    assert columns(blocks)[0].tolist() == list(range(20))
    assert decoder.findings == ()


def test_other_frames_round_trip() -> None:
    assert parse_line(header_line(header())[:-1]) == header()
    assert parse_line(pong_line(PongLine(7, 2**32 - 1, 3))[:-1]) == PongLine(7, 2**32 - 1, 3)
    assert parse_line(counters_line(Counters(1, 2, 3, 4))[:-1]) == Counters(1, 2, 3, 4)


@pytest.mark.parametrize(
    "change", [{"ver": 2}, {"proto": "other"}, {"clock_hz": 1000}, {"rshunt_uohm": 0}, {"addr": 0x10}]
)
def test_a_header_that_does_not_fit_says_what(change: dict[str, object]) -> None:
    facts = {**header().model_dump(), **change}
    body = b"#H" + str(facts).replace("'", '"').encode()
    outcome = parse_line(seal(body)[:-1])
    assert isinstance(outcome, Refused)
    assert outcome.code == "bad_header"
    assert next(iter(change)) in outcome.reason


def test_a_later_header_may_say_more() -> None:
    facts = {**header().model_dump(), "temperature": 21}
    assert parse_line(seal(b"#H" + str(facts).replace("'", '"').encode())[:-1]) == header()


def test_bytes_recorded_under_an_earlier_name_of_the_project_are_read() -> None:
    sketch = header().model_copy(update={"proto": "someproject-ina219"})
    blocks, decoder = decode(header_line(sketch) + data_line(0, PERIOD_US, 100, 8000, Flags.CNVR))
    assert (len(blocks), decoder.findings) == (1, ())
