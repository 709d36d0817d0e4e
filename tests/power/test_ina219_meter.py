from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulefleet.errors import (
    ConfigError,
    MeterBusy,
    MeterDisconnected,
    MeterError,
    MeterNotFound,
    MeterProtocolError,
    MeterSilent,
    UnsafeOutput,
)
from power.emulated.ina219.instrument import EmulatedIna219
from power.emulated.options import EmulatorOptions
from power.emulated.pty_port import PtyPort
from power.emulated.service import Emulator, EmulatorProcess, in_thread, serve
from power.emulated.signals import read_truth
from power.meter import MeterConfig, PowerMeter, open_meter
from power.meters import ina219_link
from power.meters.ina219 import Ina219, ina219_accuracy
from power.meters.ina219 import open_meter as open_ina219
from power.meters.serial_port import SerialPort
from power.model import SampleBlock
from power.wire.ina219.frames import ASK_HEADER, RUN, Flags, data_line, header_line, parse_line, seal
from power.wire.ina219.registers import Config
from tests.power.ina219_runs import header

# Boards talk in real time: beside other work, what is late would be the machine's doing.
pytestmark = pytest.mark.usefixtures("real_time")

STEP_A = 10e-6 / 0.1
STEP_V = 4e-3


def config(address: str, **changes: Any) -> MeterConfig:
    facts: dict[str, Any] = {
        "kind": "ina219",
        "port": address,
        "voltage_v": 5.0,
        "voltage_max_v": 5.5,
        "current_limit_a": 1.0,
    }
    return MeterConfig.model_validate({**facts, **changes})


def capture(meter: PowerMeter, samples: int) -> list[SampleBlock]:
    """Blocks until so many samples have come."""
    blocks, count = [], 0
    for block in meter.stream():
        blocks.append(block)
        count += len(block)
        if count >= samples:
            meter.stop()
    return blocks


def joined(blocks: list[SampleBlock], name: str) -> np.ndarray:
    return np.concatenate([getattr(block, name) for block in blocks])


def codes(meter: PowerMeter) -> dict[str, int]:
    return {finding.code: finding.count for finding in meter.findings}


@contextlib.contextmanager
def opened(options: EmulatorOptions, **changes: Any) -> Iterator[tuple[Emulator, Ina219]]:
    """An emulated board and our driver on it."""
    with in_thread("ina219", options) as emulator, open_ina219(config(emulator.address, **changes)) as meter:
        yield emulator, meter


@contextlib.contextmanager
def served(emulator: EmulatedIna219) -> Iterator[EmulatedIna219]:
    stop = threading.Event()
    thread = threading.Thread(target=serve, args=(emulator, stop), daemon=True)
    thread.start()
    try:
        yield emulator
    finally:
        stop.set()
        thread.join()
        emulator.close()


@contextlib.contextmanager
def answering(answer: Callable[[bytes], bytes]) -> Iterator[str]:
    """A port whose other end sends ``answer(bytes received)`` every few milliseconds."""
    port = PtyPort()
    stop = threading.Event()

    def talk() -> None:
        while not stop.is_set():
            if reply := answer(port.read(0.002)):
                port.write(reply)

    thread = threading.Thread(target=talk, daemon=True)
    thread.start()
    try:
        yield port.path
    finally:
        stop.set()
        thread.join()
        port.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ina219_link, "HEADER_TRIES", 2)


def test_readings_are_the_truth_within_the_steps_of_the_converter(tmp_path: Path) -> None:
    truth_file = tmp_path / "truth"
    options = EmulatorOptions(
        signal="square:low=0.1,high=0.9,period=0.3,voltage=5.013", noise_a=0.003, truth=truth_file
    )
    with opened(options) as (emulator, meter):
        blocks = capture(meter, 600)
        assert codes(meter) == {}
        timebase = meter.timebase
    samples = emulator.statistics["samples"]
    assert emulator.statistics["discarded_bytes"] == 0
    # Four conversions of the shunt, then one of the bus, for each reading; those before the run count not.
    rows = read_truth(truth_file).reshape(-1, 5)[-samples:]
    n = len(joined(blocks, "ticks"))
    true_a, true_v = rows["current_a"][:n, :4].mean(axis=1), rows["voltage_v"][:n, 4]
    assert [block.dropped_before for block in blocks] == [0] * len(blocks)
    assert np.abs(joined(blocks, "current_a") - true_a).max() <= STEP_A
    assert np.abs(joined(blocks, "voltage_v") - true_v).max() <= STEP_V / 2 + 1e-9
    assert joined(blocks, "current_a").mean() == pytest.approx(true_a.mean(), abs=STEP_A / 10)
    # Times come from the fit: hardly before the current flowed, and not far behind on this machine.
    late_ns = timebase.to_host_ns(joined(blocks, "ticks")) - rows["t_ns"][:n, :4].mean(axis=1)
    assert late_ns.min() > -10e6
    assert np.median(late_ns) < 50e6


def test_the_clock_of_a_reading_is_that_of_the_middle_of_its_average(tmp_path: Path) -> None:
    truth_file = tmp_path / "truth"
    emulator = EmulatedIna219(EmulatorOptions(rate_hz=15, truth=truth_file))
    boot_ns = emulator._board._boot_ns
    with served(emulator), open_meter(config(emulator.address)) as meter:
        ticks = joined(capture(meter, 10), "ticks")
    rows = read_truth(truth_file).reshape(-1, 129)[-emulator.statistics["samples"] :][: len(ticks)]
    true_us = (rows["t_ns"][:, :128].mean(axis=1) - boot_ns) / 1000
    assert np.abs(ticks - true_us).max() <= 1


def test_arrival_tells_when_a_reading_was_complete_not_when_it_was_measured() -> None:
    """128 conversions: a reading is complete 34.6 ms after the middle of what it averages."""
    with opened(EmulatorOptions(rate_hz=15)) as (_, meter):
        period_us = 68_628
        assert meter.info.rate_hz == pytest.approx(1e6 / period_us)
        start_ns = time.monotonic_ns()
        first = header_line(header(config=0x39FF, period_us=period_us))
        t_us = period_us * np.arange(1, 31)
        for i, at_us in enumerate(t_us.tolist()):
            line = data_line(i, at_us, 100, 8, Flags.CNVR)
            blocks = list(meter._decode(first + line, start_ns + at_us * 1000))
            first = b""
            assert blocks[-1].t_ns == pytest.approx(start_ns + (at_us - 34_580) * 1000, abs=1000)


def test_the_clock_is_placed_within_its_bound() -> None:
    before_ns = time.monotonic_ns()
    emulator = EmulatedIna219(EmulatorOptions())
    after_ns = time.monotonic_ns()
    with served(emulator), open_meter(config(emulator.address)) as meter:
        facts = meter.info.facts
    boot_ns = facts["clock_host_ns"] - facts["clock_mcu_us"] * 1000
    bound_ns = facts["clock_uncertainty_ns"] + 1000
    assert facts["clock_pings"] == 16
    assert before_ns - bound_ns <= boot_ns <= after_ns + bound_ns


def test_a_pause_ends_with_the_readings_behind_it() -> None:
    with opened(EmulatorOptions(faults=("stall@0.3:1.4",))) as (_, meter):
        blocks = capture(meter, 500)
        (pause,) = [finding for finding in meter.findings if finding.code == "pause"]
    last = blocks[-1].first_index + len(blocks[-1]) - 1
    assert pause.first_index is not None
    assert pause.last_index is not None
    assert 0 < pause.first_index <= pause.last_index <= last  # readings, not the microseconds of their clock


def test_an_echo_in_front_of_the_first_command_does_not_hide_it() -> None:
    with in_thread("ina219", EmulatorOptions()) as emulator:
        port = os.open(emulator.address, os.O_RDWR | os.O_NOCTTY)
        os.write(port, b"!R\n")
        while not emulator.statistics["samples"]:
            time.sleep(0.01)
        os.write(port, b"17,2204,31")  # a terminal echoes what arrives until it is told not to
        time.sleep(0.05)
        with open_ina219(config(emulator.address)):
            sampled = emulator.statistics["samples"]
            time.sleep(0.1)
            assert emulator.statistics["samples"] == sampled
        os.close(port)


def test_an_emulated_board_is_known_on_a_real_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("power.meters.ina219.is_real_serial", lambda path: True)
    with opened(EmulatorOptions()) as (_, meter):
        assert meter.info.emulated


def test_what_it_says_about_itself() -> None:
    with opened(EmulatorOptions(serial="board-3"), serial="board-3") as (_, meter):
        info = meter.info
    assert info.emulated  # a pty is no hardware, whatever the other end claims
    assert (info.kind, info.serial, info.hardware) == ("ina219", "board-3", "INA219A")
    assert info.rate_hz == pytest.approx(1e6 / 2660)
    assert (info.tick_hz, info.uniform_ticks) == (1e6, False)
    # SBOS448G 7.5, grade A, over temperature: 1 % and 200 uV; 1 % of the shunt beside it.
    assert info.accuracy.current[0].gain_rel == pytest.approx(0.01 * 2**0.5)
    assert info.accuracy.current[0].offset_a == pytest.approx(2e-3)
    assert (info.accuracy.current[0].step_a, info.accuracy.voltage_step_v) == pytest.approx((1e-4, 4e-3))
    assert "SBOS448G" in info.accuracy.source
    assert info.facts["stamp_after_middle_us"] == 532 + 2128 / 2


def test_grade_and_gain_decide_the_accuracy() -> None:
    best = ina219_accuracy("B", Config.from_word(0x019F), 0.1, 0.0)  # PGA/1, 12 bits
    assert best.current[0].gain_rel == pytest.approx(0.005)
    assert best.current[0].offset_a == pytest.approx(50e-6 / 0.1)
    assert (best.current[0].step_a, best.voltage_step_v) == pytest.approx((10e-6 / 0.1, 4e-3))
    quick = ina219_accuracy("B", Config.from_word(0x0007), 0.1, 0.0)  # 9 bits leave three out
    assert (quick.current[0].step_a, quick.voltage_step_v) == pytest.approx((80e-6 / 0.1, 32e-3))
    averaged = ina219_accuracy("B", Config.from_word(0x01FF), 0.1, 0.0)  # 128 shunt conversions
    assert averaged.current[0].step_a == best.current[0].step_a


def test_every_loss_is_accounted_for() -> None:
    faults = ("lost_packets@0.3:5", "bad_checksum@0.5:3", "truncated_frame@0.7", "chip_reset@0.9")
    options = EmulatorOptions(faults=(*faults, "stall@1.1:0.3"))
    with opened(options) as (emulator, meter):
        blocks = capture(meter, 500)
        found = codes(meter)
    statistics = emulator.statistics
    received = sum(len(block) for block in blocks)
    dropped = sum(block.dropped_before or 0 for block in blocks)
    last = blocks[-1].first_index + len(blocks[-1])
    assert received + dropped == last
    # The truncated line took its successor along; the reading in which the reset showed is none.
    assert dropped == statistics["lost"] + statistics["damaged"] + 1 + 1
    assert found["gap"] == dropped
    assert found["chip_reset"] == found["cal_lost"] == statistics["resets"] == 1
    assert found["bad_checksum"] + found.get("malformed_line", 0) == 3 + 1
    for block in blocks:
        assert block.current_a == pytest.approx(np.full(len(block), 0.25))


def test_the_clock_wraps_in_the_middle_of_a_capture() -> None:
    emulator = EmulatedIna219(EmulatorOptions(), clock_start_us=2**32 - 1_500_000)
    with served(emulator), open_meter(config(emulator.address)) as meter:
        blocks = []
        for block in meter.stream():
            blocks.append(block)
            if block.ticks[-1] > 2**32 + 200_000:
                meter.stop()
        assert codes(meter) == {}
    ticks = joined(blocks, "ticks")
    assert ticks[0] < 2**32
    assert set(np.diff(ticks)) <= {2659, 2660, 2661}


def test_a_crystal_that_is_off(tmp_path: Path) -> None:
    truth = tmp_path / "truth"
    with opened(EmulatorOptions(skew_ppm=800, truth=truth)) as (emulator, meter):
        ticks = joined(capture(meter, 300), "ticks")
    samples = emulator.statistics["samples"]
    t_ns = read_truth(truth)["t_ns"].reshape(-1, 5)[-samples:, 4][: len(ticks)]
    rate = (ticks[-1] - ticks[0]) * 1000 / (t_ns[-1] - t_ns[0])
    assert (rate - 1) * 1e6 == pytest.approx(800, abs=5)


def test_unplugged_in_the_middle() -> None:
    """Everything that had arrived is delivered, then the error comes."""
    blocks: list[SampleBlock] = []
    options = EmulatorOptions(faults=("disconnect@1.0",))
    with (
        opened(options) as (emulator, meter),
        pytest.raises(MeterDisconnected, match="went away") as error,
    ):
        blocks.extend(meter.stream())
    samples = emulator.statistics["samples"]
    assert "cable" in error.value.hint
    received = sum(len(block) for block in blocks)
    # A pty that closes takes along what lies in its buffer: a few polls of the port.
    assert samples - 40 <= received <= samples
    assert [block.dropped_before for block in blocks] == [0] * len(blocks)


def test_its_process_dies() -> None:
    count = 0
    with (
        EmulatorProcess("ina219", EmulatorOptions()) as emulator,
        open_meter(config(emulator.address)) as meter,
        pytest.raises(MeterDisconnected),
    ):
        for block in meter.stream():
            count += len(block)
            if count > 100:
                emulator.kill()
    assert count > 100


def test_a_stream_that_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("power.meters.streaming.STALL_S", 0.6)
    options = EmulatorOptions(faults=("stall@0.2:60",))
    with opened(options) as (_, meter), pytest.raises(MeterSilent, match=r"no data for 0\.6 s"):
        list(meter.stream())


class Rebooting(EmulatedIna219):
    """Loses power after a hundred readings, and boots."""

    def step(self, now_ns: int) -> None:
        super().step(now_ns)
        if self._samples > 100 and self._run:
            self._run, self._run_ns = 0, None
            self._port.write(header_line(self._header(0)))


def test_the_microcontroller_restarts_in_the_middle() -> None:
    blocks: list[SampleBlock] = []
    with served(Rebooting(EmulatorOptions())) as emulator, open_meter(config(emulator.address)) as meter:
        with pytest.raises(MeterDisconnected, match="restarted"):
            blocks.extend(meter.stream())
        assert codes(meter) == {"mcu_restart": 1}
    assert sum(map(len, blocks)) == emulator.statistics["samples"]


def test_it_opens_while_an_older_run_is_still_going() -> None:
    """A host that crashed left it running."""
    with in_thread("ina219", EmulatorOptions()) as emulator:
        port = SerialPort(emulator.address, kind="ina219")
        port.write(RUN)
        time.sleep(0.2)
        port.close()
        with open_meter(config(emulator.address)) as meter:
            blocks = capture(meter, 50)
            assert codes(meter) == {}
    assert blocks[0].first_index == 0


def test_it_can_be_opened_again() -> None:
    with in_thread("ina219", EmulatorOptions()) as emulator:
        for _ in range(2):
            with open_meter(config(emulator.address)) as meter:
                assert len(joined(capture(meter, 20), "ticks")) >= 20


def test_only_one_may_use_it() -> None:
    with opened(EmulatorOptions()) as (emulator, _), pytest.raises(MeterBusy):
        open_meter(config(emulator.address))


def test_ranges_below_the_limits_of_the_device_are_noticed() -> None:
    with opened(EmulatorOptions(), current_limit_a=3.3) as (_, meter):
        assert codes(meter) == {"range_below_limit": 1}


def test_absent_port() -> None:
    with pytest.raises(MeterNotFound, match="no such port"):
        open_meter(config("/dev/ttyUSB99"))


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"port": ""}, MeterNotFound, "no port given"),
        ({"channel": "usb"}, ConfigError, "no channel 'usb'"),
        ({"voltage_max_v": 27.0}, UnsafeOutput, "26 V"),
        ({"options": {"bauds": 9600}}, ConfigError, "options: bauds: unknown key"),
    ],
)
def test_refused_before_the_port_is_touched(
    changes: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        open_meter(config("/dev/null", **changes))


def test_another_board_on_the_port() -> None:
    with (
        in_thread("ina219", EmulatorOptions(serial="board-2")) as emulator,
        pytest.raises(MeterNotFound, match="'board-2', not 'board-1'"),
    ):
        open_meter(config(emulator.address, serial="board-1"))


@pytest.mark.usefixtures("impatient")
def test_nobody_answers() -> None:
    with answering(lambda _: b"") as port, pytest.raises(MeterSilent, match="nothing answers"):
        open_meter(config(port))


@pytest.mark.usefixtures("impatient")
def test_another_baud_rate() -> None:
    rng = np.random.default_rng(1)
    with (
        answering(lambda _: rng.bytes(40)) as port,
        pytest.raises(MeterProtocolError, match="not the INA219 protocol") as error,
    ):
        open_meter(config(port))
    assert "500000 baud" in error.value.hint


@pytest.mark.usefixtures("impatient")
def test_a_sketch_that_prints_loose_lines() -> None:
    with (
        in_thread("ina219", EmulatorOptions(variant="millis-all")) as emulator,
        pytest.raises(MeterError, match="loose lines") as error,
    ):
        open_meter(config(emulator.address))
    assert "ina219-csv" in error.value.hint


def answer_header(line: bytes) -> Callable[[bytes], bytes]:
    return lambda received: line if ASK_HEADER in received else b""


def test_another_version_of_the_protocol() -> None:
    line = header_line(header())
    newer = seal(line[: line.rindex(b"*")].replace(b'"ver":1', b'"ver":2'))
    with (
        answering(answer_header(newer)) as port,
        pytest.raises(MeterError, match=r"not of this version of the protocol.*ver") as error,
    ):
        open_meter(config(port))
    assert not error.value.transient
    assert "flash" in error.value.hint


@pytest.mark.parametrize(
    ("changes", "says"), [({"config": 0x399B}, "mode 3"), ({"period_us": 500}, "period_us 500")]
)
def test_a_header_that_makes_no_sense(changes: dict[str, Any], says: str) -> None:
    line = header_line(header(**changes))
    with answering(answer_header(line)) as port, pytest.raises(MeterError, match=says):
        open_meter(config(port))


def test_pings_that_are_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ina219_link, "PINGS", 2)
    talk = answer_header(header_line(header()))
    with answering(talk) as port, pytest.raises(MeterProtocolError, match="not what time"):
        open_meter(config(port))


def test_an_emulator_refuses_faults_it_does_not_have() -> None:
    with pytest.raises(ConfigError, match="no fault 'drop_counter_wrap'"):
        EmulatedIna219(EmulatorOptions(faults=("drop_counter_wrap@1",)))
    with pytest.raises(ConfigError, match="no variant 'json'"):
        EmulatedIna219(EmulatorOptions(variant="json"))


def test_the_emulated_header_is_one_of_the_protocol() -> None:
    with in_thread("ina219", EmulatorOptions(rate_hz=940)) as emulator:
        port = SerialPort(emulator.address, kind="ina219")
        port.write(ASK_HEADER)
        line = port.read_available(2.0)
        port.close()
    frame = parse_line(line.rstrip(b"\n"))
    assert frame == header(fw="emulated", uid="EMULATED", run=0, t_us=frame.t_us)  # type: ignore[union-attr]
