"""The claims of the sketch's README, on the machine code that an Arduino Uno runs, in simavr."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulefleet.errors import MeterError
from power.emulated.ina219.chip import Ina219Chip
from power.meter import MeterConfig, open_meter
from power.recording.recorder import record
from power.wire.ina219.frames import Conversion, Counters, Flags, Header, PongLine, parse_line
from power.wire.ina219.registers import Register
from tests.power.ina219_runs import codes, columns, decode, header
from tests.power.simulated_uno import BOARD, Transcript, Uno, Workshop, require_tools, run

pytestmark = pytest.mark.xdist_group("simavr")

RAM_BYTES, FIRST_RAM, FLASH_BYTES = 2048, 0x100, 32_256  # Uno: its boot loader takes 512 bytes of flash
LOAD = {"shunt_uv": 25_000, "bus_mv": 5_000}
START = {40.0: "!R"}
BOOT_US = 500  # from power-on until micros() counts: memory is copied and cleared first


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("uno"))


@pytest.fixture(scope="module")
def uno(workshop: Workshop) -> Uno:
    return workshop.build("as_it_is")


def conversions(transcript: Transcript) -> list[Conversion]:
    frames = [parse_line(line) for line in transcript.starting_with(b"D")]
    assert all(isinstance(frame, Conversion) for frame in frames)
    return frames  # type: ignore[return-value]


def last_counters(transcript: Transcript) -> Counters:
    frame = parse_line(transcript.starting_with(b"E")[-1])
    assert isinstance(frame, Counters)
    return frame


@pytest.mark.campaign
def test_at_its_settings_it_misses_nothing(
    uno: Uno,
    tmp_path: Path,
    campaign_count: Callable[[int, int], int],
    record_property: Callable[[str, object], None],
) -> None:
    """376 readings a second, every one numbered, right and sent, with all digits that a number can have."""
    seconds = campaign_count(3, 180)
    wrap_us = 2**32 - 1_500_000  # micros() wraps after 71.6 minutes; here after 1.5 s
    load = {"shunt_uv": -319_990, "bus_mv": 31_992}
    options = {**load, **uno.clock_at(wrap_us)}
    found = uno.play(tmp_path, START, 1000 * seconds, **options)
    blocks, decoder = decode(found.after_run())
    index, tick, current_a, voltage_v = columns(blocks)
    assert codes(decoder) == {}
    assert index.tolist() == list(range(len(index)))
    assert len(index) == pytest.approx((1000 * seconds - 42) / 2.66, abs=3)
    assert set(current_a.round(9)) == {-3.1999}
    assert set(voltage_v.round(9)) == {31.992}
    assert tick[0] < 2**32 < tick[-1]
    steps = np.diff(tick)
    assert steps.mean() == pytest.approx(2660, rel=1e-3)
    assert steps.min() > 1330  # never taken for the one before or after
    assert steps.max() < 3990
    assert np.all(tick % 4 == 0)  # micros() counts in fours
    assert last_counters(found) == Counters(0, 0, 0, 0)
    assert found.seen["baud"] == 500_000
    assert found.seen["scl_hz"] == 400_000
    sizes = uno.sizes()
    free = found.seen["lowest_stack"] - FIRST_RAM - sizes["memory"]
    assert sizes["flash"] < FLASH_BYTES / 2
    assert free > RAM_BYTES / 4
    record_property("simulated seconds", seconds)
    record_property("readings", len(index))
    record_property("time step us: mean, sd, least, most", [round(float(x), 1) for x in (
        steps.mean(), steps.std(), steps.min(), steps.max())])  # fmt: skip
    record_property("flash, memory, memory never used: bytes", [sizes["flash"], sizes["memory"], int(free)])


def test_it_boots_stopped_and_does_as_it_is_told(uno: Uno, tmp_path: Path) -> None:
    script = {20.0: "?H", 30.0: "?P 4294967295", 40.0: "?P x", 41.0: "!R ", 42.0: "Y" * 40, 60.0: "!R"}
    script |= {160.0: "?P 7", 200.0: "!S", 210.0: "?E", 220.0: "!R", 240.0: "!S"}
    found = uno.play(tmp_path, script, 300, **LOAD)
    kinds = b"".join(line[:1] for _, line in found.lines)
    assert kinds.startswith(b"##P#D")
    headers = [parse_line(line) for line in found.starting_with(b"#")]
    assert [one.run for one in headers if isinstance(one, Header)] == [0, 0, 1, 2]
    first = headers[0]
    assert isinstance(first, Header)
    set_to = {"config": 0x39D7, "period_us": 5 * 532, "fw": "1.1.0", "uid": "ina219-1"}
    assert first == header(**set_to, run=0, t_us=first.t_us)
    pongs = [parse_line(line) for line in found.starting_with(b"P")]
    assert [pong.nonce for pong in pongs if isinstance(pong, PongLine)] == [2**32 - 1, 7]
    stopped_us = next(t_us for t_us, line in found.lines if line.startswith(b"E"))
    quiet = [line for t_us, line in found.lines if 201_500 < t_us < stopped_us]
    assert quiet == []
    seq = [frame.seq for frame in conversions(found)]
    assert seq == [*range(seq.index(0, 1)), *range(len(seq) - seq.index(0, 1))]  # each run counts from 0


def test_a_ping_is_answered_with_the_time_it_came(uno: Uno, tmp_path: Path) -> None:
    """The host takes half of what the sketch does not account for as its error."""
    for running in ({}, {10.0: "!R"}):
        found = uno.play(tmp_path, {**running, 100.0: "?P 5"}, 110, **LOAD)
        sent_us, line = next((t, line) for t, line in found.lines if line.startswith(b"P"))
        pong = parse_line(line)
        assert isinstance(pong, PongLine)
        came_us = 100_000 + 5 * 20  # five bytes at 500,000 baud, polled by the simulator every 0.1 ms
        late_us = pong.t_rx_us + BOOT_US - came_us
        assert -50 <= late_us <= (1500 if running else 200)
        assert 0 <= pong.t_tx_us - pong.t_rx_us < 100
        assert 0 < sent_us - (pong.t_tx_us + BOOT_US) < 2000


@pytest.mark.parametrize(
    ("option", "flag"),
    [("absent", Flags.I2C_ERROR), ("hang", Flags.I2C_ERROR)],
)
def test_a_bus_that_fails_for_a_while(uno: Uno, tmp_path: Path, option: str, flag: Flags) -> None:
    """Unplugged (no acknowledge), or a wire held low: counted, marked, and it goes on by itself."""
    faults = {f"{option}_at_ms": 500.0, f"{option}_ms": 200.0}
    found = uno.play(tmp_path, START, 1500, **LOAD, **faults)
    blocks, decoder = decode(found.after_run())
    _, _, current_a, voltage_v = columns(blocks)
    assert set(current_a.round(9)) == {0.25}
    assert set(voltage_v.round(9)) == {5.0}
    bad = [frame for frame in conversions(found) if frame.flags & flag]
    assert codes(decoder)["i2c_error"] == len(bad) == last_counters(found).i2c_errors
    lost = len(bad) + last_counters(found).late
    assert lost == pytest.approx(200 / 2.66, abs=4)
    assert found.seen["scl_hz"] == 400_000  # kept when the library resets the bus
    times_us = [frame.t_us for frame in conversions(found)]
    assert np.diff(times_us).mean() * (len(times_us) - 1) == pytest.approx(1_500_000 - 42_000, rel=0.01)


def test_a_bus_that_is_dead_from_the_start_does_not_silence_it(uno: Uno, tmp_path: Path) -> None:
    found = uno.play(tmp_path, {200.0: "?H", 300.0: "!R", 600.0: "?H"}, 1000, hang_at_ms=0.01, hang_ms=1e6)
    headers = [parse_line(line) for line in found.starting_with(b"#")]
    assert [one.run for one in headers if isinstance(one, Header)] == [0, 0, 1, 1]
    assert {frame.flags for frame in conversions(found)} == {int(Flags.I2C_ERROR)}


@pytest.mark.parametrize(("shunt_uv", "at_ms"), [(25_000, 600), (25_000, 601), (0, 602)])
def test_a_chip_that_loses_its_registers_is_set_up_again(
    uno: Uno, tmp_path: Path, shunt_uv: float, at_ms: float
) -> None:
    """While the sketch waits for a conversion, or while it reads one."""
    found = uno.play(tmp_path, START, 1200, shunt_uv=shunt_uv, bus_mv=5000, reset_at_ms=at_ms)
    _, decoder = decode(found.after_run())
    assert codes(decoder)["cal_lost"] == codes(decoder)["chip_reset"] == 1
    assert set(codes(decoder)) <= {"cal_lost", "chip_reset", "gap"}
    assert last_counters(found).resets == 1
    after = [frame.t_us for frame in conversions(found)][-50:]
    assert np.diff(after).mean() == pytest.approx(2660, rel=0.01)  # and not the 1064 us of power-on


@pytest.mark.parametrize("slow", [1.1, 0.9])
def test_a_chip_with_its_own_idea_of_time(uno: Uno, tmp_path: Path, slow: float) -> None:
    """The data sheet allows 10 % more; each reading has its own time."""
    found = uno.play(tmp_path, START, 2000, **LOAD, slow=slow)
    frames = conversions(found)
    assert [frame.seq for frame in frames] == list(range(len(frames)))
    assert last_counters(found).late == 0
    assert np.diff([frame.t_us for frame in frames]).mean() == pytest.approx(2660 * slow, rel=2e-3)


@pytest.mark.campaign
def test_the_time_of_a_reading_is_the_middle_of_its_average(
    uno: Uno,
    tmp_path: Path,
    campaign_count: Callable[[int, int], int],
    record_property: Callable[[str, object], None],
) -> None:
    """A current that jumps every 50 ms: the readings say when, to a fraction of their length."""
    jumps = {"swing_uv": 25_000, "half_period_us": 50_000}
    found = uno.play(tmp_path, START, campaign_count(2500, 30_000), **LOAD, **jumps)
    _, tick, current_a, _ = columns(decode(found.after_run())[0])
    # A reading across a jump is part high, part low: it lies where a straight line would put it.
    crossing = [
        np.interp(0.375, *((current_a[[i, i + 1]], tick[[i, i + 1]]) if up else
                           (current_a[[i + 1, i]], tick[[i + 1, i]])))
        for i in range(len(tick) - 1)
        for up in [current_a[i] < 0.375 <= current_a[i + 1]]
        if up or current_a[i + 1] < 0.375 <= current_a[i]
    ]  # fmt: skip
    late_us = (np.array(crossing) + BOOT_US + 25_000) % 50_000 - 25_000
    record_property("jumps", len(crossing))
    record_property("late us: mean, sd", [round(float(late_us.mean()), 1), round(float(late_us.std()), 1)])
    assert len(crossing) >= 45
    assert 0 < late_us.mean() < 250  # half of the 0.1 ms from one look to the next
    assert np.max(np.abs(late_us)) < 1330


def test_faster_than_it_can_read_it_counts_what_goes_by(workshop: Workshop, tmp_path: Path) -> None:
    """940 conversions a second are too many for 16 MHz: over half are read, all are counted."""
    fast = workshop.build("fast", ("INA_ADC_AVG_4)", "INA_ADC_12BIT)"))
    found = fast.play(tmp_path, START, 4000, shunt_uv=-319_990, bus_mv=31_992, **fast.clock_at(2**32 - 2**20))
    blocks, decoder = decode(found.after_run())
    index, tick, current_a, _ = columns(blocks)
    assert codes(decoder) == {}
    assert set(current_a.round(9)) == {-3.1999}
    per_s = len(index) / ((tick[-1] - tick[0]) / 1e6)
    assert 600 < per_s < 800
    assert index[-1] == pytest.approx((tick[-1] - tick[0]) / 1064, rel=0.01)
    gaps = int(index[-1] + 1 - len(index))
    assert last_counters(found).late == pytest.approx(gaps, rel=0.5)  # the last report is up to a second old


@pytest.mark.parametrize(("shunt_uv", "share"), [(-319_990, 1.0), (0, 0.95)])
def test_the_fastest_setting_of_an_uno(
    workshop: Workshop, tmp_path: Path, shunt_uv: float, share: float
) -> None:
    """627 a second. Without a power to go by it must read one register more."""
    quick = workshop.build("quick", ("INA_ADC_AVG_4)", "INA_ADC_AVG_2)"))
    found = quick.play(tmp_path, START, 3000, shunt_uv=shunt_uv, bus_mv=31_992, **quick.clock_at(2**31))
    seq = [frame.seq for frame in conversions(found)]
    assert seq[-1] == pytest.approx((3000 - 42) / 1.596, rel=0.01)
    assert share <= len(seq) / (seq[-1] + 1) <= 1.0


@pytest.mark.parametrize(("baud", "off"), [(115_200, 0.021), (230_400, -0.035)])
def test_lines_that_do_not_fit_are_counted_not_waited_for(
    workshop: Workshop, tmp_path: Path, baud: int, off: float
) -> None:
    slow = workshop.build(f"baud_{baud}", ("BAUD = 500000", f"BAUD = {baud}"))
    found = slow.play(tmp_path, START, 3000, shunt_uv=-319_990, bus_mv=31_992, **slow.clock_at(2**31))
    assert found.seen["baud"] / baud - 1 == pytest.approx(off, abs=1e-3)
    frames = conversions(found)
    seq = np.array([frame.seq for frame in frames])
    elapsed_us = frames[-1].t_us - frames[0].t_us
    assert elapsed_us / (seq[-1] - seq[0]) == pytest.approx(2660, rel=1e-3)
    counted = last_counters(found)
    lost = np.diff(seq, prepend=-1) - 1
    if baud > 200_000:  # the header takes 13 ms, and the first reading finds its end still in the buffer
        assert counted == Counters(1, 0, 0, 0)
        assert lost.tolist() == [1] + [0] * (len(lost) - 1)
        return
    assert counted.overruns == pytest.approx(lost.sum(), rel=0.5)
    assert counted.late == 0
    after_loss = [bool(frame.flags & Flags.OVERRUN) for frame in frames]
    assert after_loss == (lost > 0).tolist()
    assert codes(decode(found.after_run())[1])["mcu_overrun"] == counted.overruns


def test_the_sync_input_is_sent_with_every_reading(workshop: Workshop, tmp_path: Path) -> None:
    uno = workshop.build("sync", ("SYNC_PIN = -1", "SYNC_PIN = 7"))
    found = uno.play(tmp_path, START, 1500, **LOAD, sync_half_ms=100)
    _, decoder = decode(found.after_run())
    edges_us = [edge.tick for edge in decoder.sync_edges]
    assert [edge.high for edge in decoder.sync_edges][:4] == [True, False, True, False]
    assert len(edges_us) >= 13
    assert all(abs((b - a) - 100_000) <= 2 * 2660 for a, b in pairwise(edges_us))


def test_our_driver_records_from_the_real_machine_code(uno: Uno) -> None:
    """In real time: the port's opening resets the board, whose boot loader takes its 1.6 s."""
    with uno.plugged_in(**LOAD, reset_on_open=1, boot_ms=1600) as port:
        config = MeterConfig(
            kind="ina219", port=port, serial="ina219-1", voltage_v=5, voltage_max_v=5.5, current_limit_a=1
        )
        with open_meter(config) as meter:
            assert meter.info.emulated
            assert meter.info.firmware == "1.1.0"
            assert meter.info.rate_hz == pytest.approx(1e6 / 2660)
            blocks = []
            for block in meter.stream():
                blocks.append(block)
                if sum(map(len, blocks)) > 600:
                    meter.stop()
            findings = {finding.code for finding in meter.findings}
    current = np.concatenate([block.current_a for block in blocks])
    t_ns = np.concatenate([block.t_ns for block in blocks])
    assert set(current.round(9)) == {0.25}
    assert findings == set()
    assert [block.dropped_before for block in blocks] == [0] * len(blocks)
    assert np.diff(t_ns).mean() == pytest.approx(2.66e6, rel=0.02)


@pytest.mark.parametrize("fault", ["absent", "hang"])
def test_a_chip_that_is_not_there_is_named(uno: Uno, tmp_path: Path, fault: str) -> None:
    """Within seconds and by its address; it used to be half a minute and "not a single sample"."""
    with uno.plugged_in(**{f"{fault}_at_ms": 0.01, f"{fault}_ms": 1e9}) as port:
        config = MeterConfig(kind="ina219", port=port, voltage_v=5, voltage_max_v=5.5, current_limit_a=1)
        with open_meter(config) as meter, pytest.raises(MeterError, match="INA219 at address 0x40 does not"):
            record(meter, tmp_path / "r", seconds=20)


# The two models of the chip


class CChip(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_double) for name in ("shunt_uv", "bus_mv", "swing_uv", "half_period_us", "slow")],
        *[(name, ctypes.c_uint16) for name in ("config", "calibration")],
        *[(name, ctypes.c_int32) for name in ("shunt", "bus", "current", "power")],
        *[(name, ctypes.c_int) for name in ("ready", "overflow", "converting")],
        ("begun_us", ctypes.c_double),
    ]


@pytest.fixture(scope="module")
def c_chip(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    require_tools()
    target = tmp_path_factory.mktemp("chip") / "ina219.so"
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    run(["gcc", *strict, "-O1", "-shared", "-fPIC", str(BOARD / "ina219.c"), "-o", str(target), "-lm"])
    library = ctypes.CDLL(str(target))
    library.ina219_read.restype = ctypes.c_uint16
    for name, kinds in {
        "power_on": [],
        "write": [ctypes.c_uint, ctypes.c_uint16],
        "read": [ctypes.c_uint],
    }.items():
        getattr(library, f"ina219_{name}").argtypes = [ctypes.POINTER(CChip), *kinds, ctypes.c_double]
    return library


STEPS = st.lists(
    st.tuples(
        st.integers(1, 200_000),  # microseconds
        st.sampled_from(list(Register)),
        st.none() | st.integers(0, 0xFFFF),
    ),
    max_size=40,
)


@given(st.integers(-400_000, 400_000), st.integers(0, 33_000), STEPS)
@settings(max_examples=150, deadline=None)
def test_two_models_of_the_chip_agree(
    c_chip: ctypes.CDLL, shunt_uv: int, bus_mv: int, steps: list[tuple[int, Register, int | None]]
) -> None:
    """Written apart from the same data sheet: every register, at every moment, after every write."""
    volts = (shunt_uv * 1e-6 + 1e-9, bus_mv * 1e-3 + 1e-6)  # off the borders between two steps
    ours = Ina219Chip(lambda t_ns: (np.full(len(t_ns), volts[0]), np.full(len(t_ns), volts[1])))
    theirs = CChip(shunt_uv=volts[0] * 1e6, bus_mv=volts[1] * 1e3)
    c_chip.ina219_power_on(ctypes.byref(theirs), 0.0)
    now_us = 0
    for wait_us, register, value in steps:
        now_us += wait_us
        if value is not None:
            ours.write(register, value, now_us * 1000)
            c_chip.ina219_write(ctypes.byref(theirs), register, value, now_us)
        for read in Register:
            assert ours.read(read, now_us * 1000) == c_chip.ina219_read(ctypes.byref(theirs), read, now_us), (
                now_us, read)  # fmt: skip
