from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from joulefleet.errors import ConfigError, MeterDisconnected, MeterProtocolError, MeterSilent
from power.emulated.options import EmulatorOptions
from power.emulated.pty_port import PtyPort
from power.emulated.service import in_thread
from power.energy import Window, integrate
from power.meter import MeterConfig
from power.meters.ina219_csv import Ina219Csv, _rate_hz, open_meter
from power.model import Loss, SampleBlock, SampleClock
from power.wire.ina219.csv_decoder import CsvScale, Ina219CsvDecoder
from power.wire.ina219.csv_rows import CsvFormat, CsvRowReader, Row, known_formats, recognise
from tests.power.synthetic import info as synthetic_info

ADAFRUIT = """Bus Voltage:   5.00 V
Shunt Voltage: 25.00 mV
Load Voltage:  5.03 V
Current:       250.10 mA
Power:         1250.50 mW

"""
ADAFRUIT_NEWER = ADAFRUIT.replace(" V\n", "\tV\n").replace("Power:    ", "Bus Power:")
ROWS = {
    CsvFormat.MILLIS_LOAD: ("1234,5.03,250.10", Row(1234, None, 5.03, 0.2501)),
    CsvFormat.MILLIS_ALL: ("1234,5.00,25.01,5.03,250.10", Row(1234, 5.0, 5.03, 0.2501, 0.02501)),
    CsvFormat.ALL: ("5.00,25.01,5.03,-250.10", Row(None, 5.0, 5.03, -0.2501, 0.02501)),
    CsvFormat.MILLIS_CURRENT: ("1234 250.10", Row(1234, None, None, 0.2501)),
}


def config(address: str, **options: Any) -> MeterConfig:
    return MeterConfig(
        kind="ina219-csv",
        port=address,
        voltage_v=5.0,
        voltage_max_v=5.5,
        current_limit_a=1.0,
        options=options,
    )


@contextlib.contextmanager
def opened(variant: str, emulator: dict[str, Any] | None = None, **options: Any) -> Iterator[Ina219Csv]:
    signal = "constant:current=0.25,voltage=5.0"
    emulated = EmulatorOptions(signal=signal, variant=variant, **(emulator or {}))
    with in_thread("ina219", emulated) as board, open_meter(config(board.address, **options)) as meter:
        yield meter


def capture(meter: Ina219Csv, samples: int) -> list[SampleBlock]:
    blocks, count = [], 0
    for block in meter.stream():
        blocks.append(block)
        count += len(block)
        if count >= samples:
            meter.stop()
    return blocks


@pytest.mark.parametrize("csv_format", list(ROWS))
def test_rows(csv_format: CsvFormat) -> None:
    text, row = ROWS[csv_format]
    reader = CsvRowReader(csv_format)
    assert reader.read(text.encode() + b"\r") == row
    assert reader.read(b"") == "part"
    others = [other for name, (other, _) in ROWS.items() if name is not csv_format]
    for line in [*others, "Hello!", text + ",1", text[:-1] + "x", "99999999999" + text, "Current: 1 mA"]:
        assert reader.read(line.encode()) == "bad", line


@pytest.mark.parametrize("text", [ADAFRUIT, ADAFRUIT_NEWER, ADAFRUIT.replace("\n", "\r\n")])
def test_human_lines(text: str) -> None:
    reader = CsvRowReader(CsvFormat.ADAFRUIT)
    rows = [reader.read(line.encode()) for line in text.split("\n")]
    assert [row for row in rows if row != "part"] == [Row(None, 5.0, 5.03, 0.2501, 0.025)]


def test_half_a_human_reading_is_not_used() -> None:
    """Without the bus voltage the load voltage would take its place, and be another voltage."""
    decoder = Ina219CsvDecoder(CsvFormat.ADAFRUIT, CsvScale(), 0.5)
    start = ADAFRUIT.split("\n", 2)[2]
    damaged = ADAFRUIT.replace("Bus Voltage", "Bus Vxltage")
    blocks = decoder.feed((start + ADAFRUIT + damaged + ADAFRUIT).encode(), 10**9)
    assert np.concatenate([block.voltage_v for block in blocks]).tolist() == [5.0, 5.0]
    assert [block.dropped_before for block in blocks] == [None, None]
    assert [finding.code for finding in decoder.findings] == ["unreadable_line"]


@pytest.mark.parametrize(
    ("csv_format", "line"),
    [
        (CsvFormat.MILLIS_ALL, b"1,5.00,25.00,5.10,250.0"),  # the sum does not hold: other columns
        (CsvFormat.MILLIS_LOAD, b"1,33.0,250.0"),
        (CsvFormat.MILLIS_LOAD, b"1,-0.1,250.0"),
        (CsvFormat.MILLIS_LOAD, b"1,5.0,100001.0"),
        (CsvFormat.MILLIS_LOAD, b"4294967296,5.0,100.0"),
    ],
)
def test_rows_that_no_ina219_can_have_measured(csv_format: CsvFormat, line: bytes) -> None:
    assert CsvRowReader(csv_format).read(line) == "bad"


@pytest.mark.parametrize("csv_format", list(ROWS))
def test_formats_are_recognised(csv_format: CsvFormat) -> None:
    line = ROWS[csv_format][0].encode()
    assert recognise([b"Measuring ...", b"BusV[V],LoadV[V]", line, line]) is None
    assert recognise([b"Measuring ...", b"BusV[V],LoadV[V]", line, line, line]) is csv_format
    assert recognise([line, line, line, b"5.0;25.0;5.03"]) is None


def test_human_lines_are_recognised() -> None:
    assert recognise(ADAFRUIT.encode().split(b"\n")) is CsvFormat.ADAFRUIT
    assert recognise([b"VOLTAHELLO", b'{"sps":500}', b"DATASTART", b"\x01\x02"]) is None


def rows_at(*millis: int) -> bytes:
    return b"".join(b"%d,5.03,250.00\r\n" % t for t in millis)


def decode(
    data: bytes, scale: CsvScale | None = None, arrival_ns: int = 10**9
) -> tuple[list[Any], dict[str, int]]:
    decoder = Ina219CsvDecoder(CsvFormat.MILLIS_LOAD, scale or CsvScale(shunt_ohm=0.1), 100.0)
    decoder.feed(b"torn\n", 0)
    blocks = decoder.feed(data, arrival_ns)
    return blocks, {finding.code: finding.count for finding in decoder.findings}


def test_the_first_line_is_not_used() -> None:
    decoder = Ina219CsvDecoder(CsvFormat.MILLIS_LOAD, CsvScale(shunt_ohm=0.1), 100.0)
    blocks = decoder.feed(rows_at(9, 1010, 1020), 0)  # "1000,..." was cut to "9,..." or so
    assert blocks[0].ticks.tolist() == [1_010_000, 1_020_000]


def test_loss_is_unknown_and_suspicion_is_a_cut() -> None:
    blocks, found = decode(rows_at(10, 20) + b"3O,5.03,250.00\n" + rows_at(40, 50))
    assert [(b.first_index, len(b.ticks), b.dropped_before) for b in blocks] == [(0, 2, None), (2, 2, None)]
    assert found == {"unreadable_line": 1}
    # Later portions continue where nothing is suspicious.
    decoder = Ina219CsvDecoder(CsvFormat.MILLIS_LOAD, CsvScale(shunt_ohm=0.1), 100.0)
    decoder.feed(b"\n" + rows_at(10, 20), 0)
    assert [b.dropped_before for b in decoder.feed(rows_at(30), 0)] == [0]


def test_a_pause_is_a_cut_and_not_bridged() -> None:
    """Nobody knows what the device drew meanwhile."""
    blocks, found = decode(rows_at(*range(0, 1000, 10), *range(3900, 5000, 10)))
    assert [(b.first_index, len(b.ticks), b.dropped_before) for b in blocks] == [
        (0, 100, None),
        (100, 110, None),
    ]
    assert found == {}
    info = synthetic_info(rate_hz=100.0, tick_hz=1e6, uniform_ticks=False, loss=Loss.UNKNOWN)
    samples = [
        SampleBlock(b.ticks * 1000, b.ticks, b.current_a, b.voltage_v, b.first_index, b.dropped_before)
        for b in blocks
    ]
    windows = [Window(a * 10**8, b * 10**8) for a, b in [(1, 9), (5, 45), (40, 49)]]
    assert [energy.valid for energy in integrate(samples, windows, info)] == [True, False, True]


def test_one_lost_line_or_a_late_one_is_no_pause() -> None:
    blocks, _ = decode(rows_at(0, 10, 30, 40, 65))
    assert [len(b.ticks) for b in blocks] == [5]
    # Milliseconds cannot show more than a thousand lines per second.
    decoder = Ina219CsvDecoder(CsvFormat.MILLIS_LOAD, CsvScale(shunt_ohm=0.1), 5000.0)
    assert len(decoder.feed(b"\n" + rows_at(1, 1, 2, 2, 3), 0)) == 1


def test_a_slow_sketch_does_not_leap() -> None:
    decoder = Ina219CsvDecoder(CsvFormat.MILLIS_LOAD, CsvScale(shunt_ohm=0.1), 1 / 20)
    (block,) = decoder.feed(b"\n" + rows_at(0, 20_000, 40_000), 0)
    assert block.ticks.tolist() == [0, 20_000_000, 40_000_000]


def test_milliseconds_wrap_and_keep_their_order() -> None:
    top = 2**32
    blocks, found = decode(rows_at(top - 10, top - 1, top - 1, 5))
    assert blocks[0].ticks.tolist() == [
        (top - 10) * 1000,
        (top - 1) * 1000,
        (top - 1) * 1000 + 1,
        (top + 5) * 1000,
    ]
    assert found == {}


def test_a_wrong_digit_in_the_time_is_dropped() -> None:
    blocks, found = decode(rows_at(1000, 1010, 91020, 1030, 1040))
    assert np.concatenate([b.ticks for b in blocks]).tolist() == [1e6, 1.01e6, 1.03e6, 1.04e6]
    assert [b.dropped_before for b in blocks] == [None, None]
    assert found == {"implausible_time": 1}


def test_a_sketch_that_restarts_goes_on_by_the_host_clock() -> None:
    decoder = Ina219CsvDecoder(CsvFormat.MILLIS_LOAD, CsvScale(shunt_ohm=0.1), 100.0)
    first = decoder.feed(b"\n" + rows_at(50_000, 50_010), 10**9)
    later = decoder.feed(rows_at(10, 20, 30), 4 * 10**9)
    assert first[-1].ticks[-1] == 50_010_000
    assert later[0].ticks.tolist() == [53_010_000, 53_020_000]  # three seconds later on the host
    assert later[0].dropped_before is None
    assert {f.code for f in decoder.findings} == {"implausible_time", "clock_jump"}


def test_lines_without_a_clock_lie_between_arrivals() -> None:
    decoder = Ina219CsvDecoder(CsvFormat.ALL, CsvScale(), 100.0)
    line = b"5.00,25.00,5.03,250.00\n"
    decoder.feed(b"\n" + line, 1_000_000_000)
    ticks = [t for b in decoder.feed(line * 4, 1_020_000_000) for t in b.ticks]
    assert ticks == [1_005_000, 1_010_000, 1_015_000, 1_020_000]
    # After a pause they are as close together as the sketch prints them, and lines may be missing.
    (block,) = decoder.feed(line * 2, 3_000_000_000)
    assert block.ticks.tolist() == [2_990_000, 3_000_000]
    assert block.dropped_before is None
    assert [b.dropped_before for b in decoder.feed(line, 3_025_000_000)] == [0]


def shunt_findings(shunt_ohm: float | None, currents_a: np.ndarray, *, late: bool = False) -> list[str]:
    """What is found on a board of 0.1 ohm; ``late`` takes each shunt voltage from the line before."""
    lines = []
    shunt_v = 0.1 * (np.roll(currents_a, 1) if late else currents_a)
    for i, (current_a, drop_v) in enumerate(zip(currents_a, shunt_v, strict=True)):
        lines.append(f"{i * 10},5.00,{drop_v * 1e3:.2f},{5 + drop_v:.2f},{current_a * 1e3:.2f}\n")
    decoder = Ina219CsvDecoder(CsvFormat.MILLIS_ALL, CsvScale(shunt_ohm), 100.0)
    decoder.feed("".join(lines).encode(), 10**9)
    return [f"{finding.severity}: {finding.message}" for finding in decoder.findings]


def test_a_current_that_contradicts_the_shunt_is_an_error() -> None:
    busy = np.where(np.arange(300) // 7 % 2, 0.5, 0.02)
    for right in (None, 0.1, 0.1005):
        assert shunt_findings(right, busy) == shunt_findings(right, busy, late=True) == []
        assert shunt_findings(right, np.full(300, 1e-4)) == [], "too little current to tell"
    for wrong in (0.01, 0.09, 0.11, 1.0):
        (found,) = shunt_findings(wrong, busy)
        assert found.startswith("error: the sketch's currents and shunt voltages fit a shunt of 0.1 ohm")
        assert f"shunt_ohm = {wrong:g}" in found


def test_the_shunt_turns_the_source_voltage_into_the_device_voltage() -> None:
    blocks, found = decode(rows_at(10, 20), CsvScale(shunt_ohm=0.1))
    assert blocks[0].voltage_v == pytest.approx([5.005, 5.005])
    assert found == {}
    blocks, found = decode(rows_at(10, 20), CsvScale())
    assert blocks[0].voltage_v == pytest.approx([5.03, 5.03])
    assert found == {"source_voltage": 1}


def test_garbage_without_a_newline_is_forgotten() -> None:
    decoder = Ina219CsvDecoder(CsvFormat.MILLIS_LOAD, CsvScale(shunt_ohm=0.1), 100.0)
    decoder.feed(b"\n" + rows_at(10), 0)
    for _ in range(1000):
        assert decoder.feed(b"\xff" * 1000, 0) == []
    assert len(decoder.feed(b"\n" + rows_at(20), 0)) == 1


@pytest.mark.parametrize("variant", ["millis-load", "millis-all", "millis-current"])
def test_sketches_are_read(variant: str) -> None:
    options = {"assumed_voltage_v": 5.0, "assumed_voltage_tolerance": 0.05} if "current" in variant else {}
    with opened(variant, **options) as meter:
        info = meter.info
        blocks = capture(meter, 60)
        found = {finding.code for finding in meter.findings}
    assert info.emulated
    assert (info.timing, info.loss) == (SampleClock.HOST, Loss.UNKNOWN)
    assert info.rate_hz == pytest.approx(100, rel=0.05)
    assert info.facts["format"] == variant
    assert blocks[0].dropped_before is None
    current = np.concatenate([block.current_a for block in blocks])
    voltage = np.concatenate([block.voltage_v for block in blocks])
    assert set(current.round(9)) == {0.25}
    expected_v = {"millis-load": 5.03, "millis-all": 5.0, "millis-current": 5.0}[variant]
    assert voltage == pytest.approx(np.full(len(voltage), expected_v))
    notes = {"millis-load": {"source_voltage"}, "millis-current": {"assumed_voltage"}}
    assert found == notes.get(variant, set())


@pytest.mark.parametrize("variant", ["all", "adafruit"])
def test_sketches_without_a_clock_are_timed_by_arrival(variant: str) -> None:
    with opened(variant, {"rate_hz": 20.0}) as meter:
        assert 5 < meter.info.rate_hz < 80  # from a few arrivals on a machine that may be busy
        blocks = capture(meter, 12)
        fit = meter.timebase
    ticks = np.concatenate([block.ticks for block in blocks])
    assert np.all(np.diff(ticks) > 0)
    assert np.concatenate([b.voltage_v for b in blocks]) == pytest.approx(np.full(len(ticks), 5.0))
    # Ticks are the host's own microseconds already.
    assert np.abs(fit.to_host_ns(ticks) - ticks * 1000).max() < 5e6


CLOCKLESS = b"5.00,25.00,5.03,250.00\n"


def test_the_rate_by_the_clock_survives_a_reset_a_pause_and_a_wrong_digit() -> None:
    def rate_hz(*millis: int) -> float | None:
        return _rate_hz([(0.0, line) for line in rows_at(*millis).splitlines()], CsvFormat.MILLIS_LOAD)

    steady = [*range(0, 300, 10)]
    assert rate_hz(500_010, 0, 10) is None  # a line from before the board was reset
    assert rate_hz(500_010, *steady) == pytest.approx(100)
    assert rate_hz(0, 1500, 1510) is None  # it had to set itself up first
    assert rate_hz(0, *(1500 + t for t in steady)) == pytest.approx(100)
    assert rate_hz(0, 10, 90_020, 30, 40) is None
    assert rate_hz(0, 10, 90_020, *(30 + t for t in steady)) == pytest.approx(100)
    assert rate_hz(0, 4000, 8000) == pytest.approx(0.25)


def test_the_rate_by_arrival_counts_reads() -> None:
    def rate_hz(*arrivals_s: float) -> float | None:
        return _rate_hz([(at_s, CLOCKLESS) for at_s in arrivals_s], CsvFormat.ALL)

    bursts = [0.016 * (i // 4) for i in range(40)]  # 250 Hz over a link that hands out 16 ms at once
    assert rate_hz(*bursts[:20]) is None
    assert rate_hz(*bursts) == pytest.approx(250)
    assert rate_hz(*bursts[:2], *(2.0 + at_s for at_s in bursts)) == pytest.approx(250)  # the board was reset
    assert rate_hz(0.0, 4.0) is None
    assert rate_hz(0.0, 4.0, 8.0) == pytest.approx(0.25)


def test_lines_that_arrive_together_do_not_make_a_fast_sketch() -> None:
    port, stop = PtyPort(), threading.Event()

    def talk() -> None:
        while not stop.wait(0.016):
            port.read()
            port.write(CLOCKLESS * 4)

    thread = threading.Thread(target=talk, daemon=True)
    thread.start()
    try:
        with open_meter(config(port.path)) as meter:
            assert 20 < meter.info.rate_hz < 500  # 250, on a machine that may be busy
    finally:
        stop.set()
        thread.join()
        port.close()


def test_a_forced_format() -> None:
    with opened("millis-all", format="millis-all") as meter:
        assert meter.info.facts["format"] == "millis-all"
    with (
        pytest.raises(MeterProtocolError, match="no readings of a known format"),
        opened("millis-all", format="millis-load", listen_s=0.5),
    ):
        pass


def test_current_without_voltage_is_refused() -> None:
    with pytest.raises(ConfigError, match="no voltage") as error, opened("millis-current"):
        pass
    assert "assumed_voltage_v" in error.value.hint


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"assumed_voltage_v": 5.0}, "belong together"),
        ({"format": "json"}, "millis,loadV,mA"),
        ({"shunt": 0.1}, "unknown key"),
    ],
)
def test_options_are_checked(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        open_meter(config("/dev/null", **options))


def test_a_serial_number_cannot_be_checked() -> None:
    with pytest.raises(ConfigError, match="no serial number"):
        open_meter(config("/dev/null").model_copy(update={"serial": "x"}))


def test_an_unknown_format_lists_the_known_ones() -> None:
    with (
        in_thread("ina219", EmulatorOptions()) as board,  # our own protocol, which waits to be asked
        pytest.raises(MeterSilent, match="nothing arrives"),
    ):
        open_meter(config(board.address, listen_s=0.3))
    port = PtyPort()
    with contextlib.closing(port), pytest.raises(MeterProtocolError) as error:
        open_with_text(port, b"temp=21.5\r\n" * 20)
    assert "temp=21.5" in error.value.message
    assert known_formats() in error.value.hint


def open_with_text(port: PtyPort, text: bytes) -> None:
    """Open it while the other end keeps sending ``text``."""
    stop = threading.Event()

    def talk() -> None:
        while not stop.wait(0.02):
            port.read()
            port.write(text)

    thread = threading.Thread(target=talk, daemon=True)
    thread.start()
    try:
        open_meter(config(port.path, listen_s=0.4))
    finally:
        stop.set()
        thread.join()


def test_unplugged_in_the_middle() -> None:
    received = 0
    with opened("millis-all", {"faults": ("disconnect@0.6",)}) as meter, pytest.raises(MeterDisconnected):
        for block in meter.stream():
            received += len(block)
    assert received > 30


def test_accuracy_says_what_is_assumed() -> None:
    with opened("millis-all", shunt_tolerance=0.02, grade="B") as meter:
        accuracy = meter.info.accuracy
    assert accuracy.current[0].gain_rel == pytest.approx((0.005**2 + 0.02**2) ** 0.5)
    # 10 uV over 0.1 ohm and 4 mV of the chip; the text has two decimals of mA and of V.
    assert accuracy.current[0].step_a == pytest.approx(100e-6 + 10e-6)
    assert accuracy.voltage_step_v == pytest.approx(4e-3 + 10e-3)
    assert "steps of 0.01 mA, voltage in steps of 0.01 V" in accuracy.source
    options = {"assumed_voltage_v": 5.0, "assumed_voltage_tolerance": 0.03}
    with opened("millis-current", **options) as meter:
        assert meter.info.accuracy.voltage_step_v == 0
        assert meter.info.accuracy.voltage_gain_rel == 0.03
