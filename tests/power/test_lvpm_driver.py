"""The LVPM driver against the emulated instrument on a real pty."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from joulefleet.errors import (
    ConfigError,
    MeterBusy,
    MeterDisconnected,
    MeterError,
    MeterNotFound,
    MeterProtocolError,
    UnsafeOutput,
)
from power.emulated.lvpm.converter import LvpmConverter
from power.emulated.lvpm.instrument import EmulatedLvpm
from power.emulated.options import EmulatorOptions
from power.emulated.pty_port import PtyPort
from power.emulated.service import in_thread
from power.emulated.signals import read_truth
from power.meter import MeterConfig, PowerMeter, open_meter
from power.meters.lvpm_unit import likely_ports
from power.meters.monsoon_lvpm import MonsoonLvpm, decoder_for
from power.meters.safety import switch_output_on
from power.meters.serial_port import PortInfo, SerialPort, is_real_serial, open_error, scan_ports, usb_maker
from power.model import Finding, SampleBlock
from power.recording.recorder import record as record_meter
from power.wire.hvpm_control import UsbPassthrough
from power.wire.lvpm_frames import START, STOP

FINE_STEP_A = 2 * 0.0332 / LvpmConverter(125e-6).fine_span
COARSE_STEP_A = 2 * 2.88 / LvpmConverter(125e-6).coarse_span
VOLTAGE_STEP_V = 4 * 125e-6


def config_for(port: str, **changes: object) -> MeterConfig:
    values = {"voltage_v": 4.0, "voltage_max_v": 4.3, "current_limit_a": 8.0, **changes}
    return MeterConfig.model_validate({"kind": "monsoon-lvpm", "port": port, **values})


@pytest.fixture
def emulated() -> Iterator[EmulatedLvpm]:
    with in_thread("monsoon-lvpm", EmulatorOptions()) as unit:
        assert isinstance(unit, EmulatedLvpm)
        yield unit


class Raw:
    """Keeps the undecoded bytes."""

    def __init__(self) -> None:
        self.portions: list[tuple[bytes, int]] = []

    def write(self, data: bytes, arrival_ns: int) -> None:
        self.portions.append((data, arrival_ns))


def capture(meter: PowerMeter, seconds: float, raw: Raw | None = None) -> list[SampleBlock]:
    """Stream until the samples span so many seconds."""
    blocks = []
    for block in meter.stream(raw):
        blocks.append(block)
        if block.ticks[-1] >= seconds * meter.info.rate_hz:
            meter.stop()
    return blocks


def record(options: EmulatorOptions, seconds: float) -> tuple[list[SampleBlock], MonsoonLvpm, dict[str, int]]:
    with in_thread("monsoon-lvpm", options) as unit, open_meter(config_for(unit.address)) as meter:
        assert isinstance(meter, MonsoonLvpm)
        blocks = capture(meter, seconds)
        return blocks, meter, unit.statistics


def remarkable(meter: PowerMeter) -> list[Finding]:
    """Findings, but for pauses of a busy test machine."""
    return [finding for finding in meter.findings if finding.code not in ("pause", "late_data")]


def joined(blocks: list[SampleBlock], name: str) -> np.ndarray:
    return np.concatenate([getattr(block, name) for block in blocks])


# What it reads


def test_says_what_it_is(emulated: EmulatedLvpm) -> None:
    with open_meter(config_for(emulated.address)) as meter:
        info = meter.info
        assert (info.kind, info.serial, info.rate_hz, info.tick_hz) == ("monsoon-lvpm", "12345", 5000, 5000)
        assert info.emulated, "a pty is no hardware"
        assert info.facts["output_setting_v"] == 4.0
        assert "assumption" in info.accuracy.source


@pytest.mark.parametrize(
    ("current_a", "step_a"),
    [(0.0, FINE_STEP_A), (0.010, FINE_STEP_A), (0.25, COARSE_STEP_A), (2.0, COARSE_STEP_A)],
)
def test_reads_a_constant_load_to_one_step(current_a: float, step_a: float) -> None:
    options = EmulatorOptions(signal=f"constant:current={current_a},voltage=3.8")
    blocks, meter, statistics = record(options, 0.4)
    assert joined(blocks, "current_a").mean() == pytest.approx(current_a, abs=step_a / 2)
    assert joined(blocks, "voltage_v").mean() == pytest.approx(3.8, abs=VOLTAGE_STEP_V / 2)
    assert [block.dropped_before for block in blocks] == [0] * len(blocks)
    assert statistics["discarded_bytes"] == 0
    assert remarkable(meter) == []


def test_each_sample_is_the_truth_to_one_step_across_both_ranges(tmp_path: Path) -> None:
    options = EmulatorOptions(
        signal="square:low=0.012,high=0.6,period=0.05,voltage=4.1",
        tau_s=0.004,
        noise_a=0.0005,
        skew_ppm=80,
        truth=tmp_path / "truth",
    )
    blocks, meter, _ = record(options, 1.0)
    truth = read_truth(tmp_path / "truth")
    ticks = joined(blocks, "ticks")
    expected = truth["current_a"][ticks]
    step = np.where(np.abs(expected) < 0.04, FINE_STEP_A, COARSE_STEP_A)
    assert np.all(np.abs(joined(blocks, "current_a") - expected) <= step * 0.51)
    assert np.ptp(expected[expected > 0.3]) > 0.1  # the load really moved
    assert (expected < 0.04).any()
    # The emulated crystal's own times, known to the nanosecond, against the fitted ones.
    assert np.abs(joined(blocks, "t_ns") - truth["t_ns"][ticks]).max() < 50e6
    assert remarkable(meter) == []


def test_first_hardware_revision_has_half_the_voltage_step() -> None:
    options = EmulatorOptions(signal="constant:current=0.1,voltage=3.3", variant="revision-1")
    blocks, meter, _ = record(options, 0.2)
    assert meter.info.facts["voltage_step_v"] == 62.5e-6
    assert joined(blocks, "voltage_v").mean() == pytest.approx(3.3, abs=VOLTAGE_STEP_V / 4)


def test_an_emulator_that_is_late_itself_loses_nothing() -> None:
    """0.3 s of samples at once are more than the kernel keeps of a port; a client that reads gets all."""
    port = PtyPort()
    client = os.open(port.path, os.O_RDONLY | os.O_NOCTTY)
    received = bytearray()

    def read() -> None:
        while len(received) < 12_000:
            received.extend(os.read(client, 1000))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    time.sleep(0.3)  # as long as a busy machine did not let the emulator run
    port.write(bytes(12_000))
    reader.join(5)
    assert (len(received), port.discarded_bytes) == (12_000, 0)
    for _ in range(3):  # nobody reads
        port.write(bytes(8000))
    assert port.discarded_bytes > 8000
    os.close(client)
    port.close()


# Faults


def test_every_loss_is_accounted_for(tmp_path: Path) -> None:
    options = EmulatorOptions(
        signal="square:low=0.02,high=0.5,period=0.11",
        faults=(
            "lost_packets@0.3:5",
            "bad_checksum@0.5:2",
            "truncated_frame@0.7:1",
            "recalibrate@0.9",
            "stall@1.2:0.08",
            "lost_packets@2.0:17",
        ),
        truth=tmp_path / "truth",
    )
    # The stall is 400 samples, of which the instrument keeps 80; its count of the others is modulo 256. Of 17
    # lost packets the sequence shows one. Only time shows the rest, and it is counted where it is missing.
    for _ in range(6):  # a machine that is too busy adds losses of its own
        (tmp_path / "truth").unlink(missing_ok=True)
        with in_thread("monsoon-lvpm", options) as unit, open_meter(config_for(unit.address)) as meter:
            blocks = capture(meter, 3.2)
            statistics, findings = unit.statistics, meter.findings
        paused = {finding.code for finding in findings} & {"pause", "late_data", "unplaced_gap"}
        if not paused and not statistics["discarded_bytes"]:
            break
    lost = sum(block.dropped_before or 0 for block in blocks)
    # 5 + 17 packets never sent, 2 + 1 sent damaged, 15 samples each
    assert statistics["lost_packets"] == 5 + 17
    assert 320 <= statistics["lost_samples"] < 320 + 15  # and what was no whole packet yet
    assert lost == (5 + 17 + 2 + 1) * 15 + statistics["lost_samples"]
    calibrations = (blocks[-1].ticks[-1] - 8) // 15_000 * 2 + 8
    assert len(joined(blocks, "ticks")) + lost + calibrations == blocks[-1].ticks[-1] + 1
    codes = {finding.code: finding.count for finding in findings}
    assert codes == {"gap": lost, "bad_checksum": 2, "resync": 2, "odd_calibration": 2, "recalibrated": 2}
    # Every sample is the truth of its own number.
    error = joined(blocks, "current_a") - read_truth(tmp_path / "truth")["current_a"][joined(blocks, "ticks")]
    assert np.abs(error).max() <= COARSE_STEP_A * 0.51


def test_over_current_ends_the_stream_and_is_an_error_at_its_place() -> None:
    blocks: list[SampleBlock] = []
    with (
        in_thread("monsoon-lvpm", EmulatorOptions(faults=("over_current@0.2",))) as unit,
        open_meter(config_for(unit.address)) as meter,
    ):
        with pytest.raises(MeterError, match="it cut the output and ended the stream"):
            for block in meter.stream():
                blocks.append(block)  # noqa: PERF402 - the blocks before the error are the point
        (finding,) = remarkable(meter)
    assert (finding.code, finding.severity) == ("over_current", "error")
    assert finding.first_index == blocks[-1].ticks[-1] + 1 == pytest.approx(1000, abs=40)
    assert not any(block.dropped_before for block in blocks)


def test_unplugging_ends_the_stream_after_every_sample_that_had_come() -> None:
    raw = Raw()
    blocks: list[SampleBlock] = []
    options = EmulatorOptions(faults=("disconnect@0.8",))
    with (
        in_thread("monsoon-lvpm", options) as unit,
        open_meter(config_for(unit.address)) as meter,
    ):
        with pytest.raises(MeterDisconnected, match="went away") as raised:
            for block in meter.stream(raw):
                blocks.append(block)  # noqa: PERF402 - the blocks before the error are the point
        assert raised.value.hint
        again = decoder_for(meter.info)
        decoded = [part for data, arrival_ns in raw.portions for part in again.feed(data, arrival_ns)]
        decoded += again.finish()
        np.testing.assert_array_equal(joined(blocks, "current_a"), joined(decoded, "current_a"))  # type: ignore[arg-type]
        assert blocks[-1].ticks[-1] > 0.6 * 5000


def test_a_silent_instrument_is_an_error_not_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("power.meters.streaming.STALL_S", 0.3)
    with (
        in_thread("monsoon-lvpm", EmulatorOptions(faults=("stall@0.2:5",))) as unit,
        open_meter(config_for(unit.address)) as meter,
        pytest.raises(MeterError, match="no data"),
    ):
        capture(meter, 5)


# What it refuses to open


def test_absent_port() -> None:
    with pytest.raises(MeterNotFound, match="no such port") as raised:
        open_meter(config_for("/dev/ttyACM-not-there"))
    assert "scan" in raised.value.hint


def test_a_directory_or_file_is_no_port(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(MeterNotFound, match="not a usable serial port"):
            open_meter(config_for(str(path)))


def test_no_permission(emulated: EmulatedLvpm) -> None:
    path = Path(emulated.address)
    path.chmod(0)
    try:
        if os.geteuid() == 0:  # who may open anything
            os.seteuid(65_534)
        with pytest.raises(MeterNotFound, match="no permission") as raised:
            open_meter(config_for(emulated.address))
    finally:
        os.seteuid(os.getuid())
    assert "dialout" in raised.value.hint


@pytest.mark.parametrize(
    ("number", "kind", "word"),
    [
        (13, MeterNotFound, "permission"),
        (1, MeterNotFound, "permission"),
        (2, MeterNotFound, "no such port"),
        (6, MeterNotFound, "no such port"),
        (16, MeterBusy, "in use"),
        (11, MeterBusy, "in use"),
        (25, MeterNotFound, "not a usable"),
    ],
)
def test_open_errors_are_told_apart(number: int, kind: type[MeterError], word: str) -> None:
    error = open_error("ina219", "/dev/ttyUSB0", OSError(number, os.strerror(number)))
    assert type(error) is kind
    assert word in error.message
    assert error.hint


def test_a_unit_whose_serial_number_is_zero_can_be_named() -> None:
    with in_thread("monsoon-lvpm", EmulatorOptions(serial="0")) as unit:
        open_meter(config_for(unit.address, serial="00")).close()


def test_wrong_serial_number(emulated: EmulatedLvpm) -> None:
    with pytest.raises(MeterNotFound, match="serial number 12345, not 777"):
        open_meter(config_for(emulated.address, serial="777"))
    with open_meter(config_for(emulated.address, serial="012345")):  # and the port was released
        pass


def test_a_port_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("power.meters.lvpm_unit.STATUS_TIMEOUT_S", 0.1)
    port = PtyPort()
    try:
        with pytest.raises(MeterProtocolError, match="no answer") as raised:
            open_meter(config_for(port.path))
        assert "monsoon-hvpm" in raised.value.hint
    finally:
        port.close()


def test_an_answer_counts_however_late_we_look(
    emulated: EmulatedLvpm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process stands still for minutes behind each command, as in a machine that sleeps."""
    minutes = itertools.count(step=60.0)
    write = SerialPort.write

    def and_wait(port: SerialPort, data: bytes) -> None:
        write(port, data)
        time.sleep(0.02)

    monkeypatch.setattr(SerialPort, "write", and_wait)
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: next(minutes))
        meter = MonsoonLvpm(config_for(emulated.address))
    with meter:
        assert meter.info.serial == "12345"


def test_a_stop_that_the_unit_misses_is_sent_again(
    emulated: EmulatedLvpm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It streams as a dead client left it, and nothing else is answered meanwhile."""
    monkeypatch.setattr("power.meters.lvpm_unit.STATUS_TIMEOUT_S", 0.1)
    write, sent = SerialPort.write, []

    def but_the_first(port: SerialPort, data: bytes) -> None:
        sent.append(data)
        write(port, START if len(sent) == 1 else data)

    monkeypatch.setattr(SerialPort, "write", but_the_first)
    with MonsoonLvpm(config_for(emulated.address)) as meter:
        assert sent[:2] == [STOP, STOP]
        assert meter.status().serial_number == 12345


def test_no_answer_is_left_for_the_next_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a unit, or a host, that takes 0.1 s for everything: also for the stop before the first question."""
    monkeypatch.setattr("power.emulated.lvpm.instrument.REPLY_NS", 100_000_000)
    with (
        in_thread("monsoon-lvpm", EmulatorOptions()) as unit,
        MonsoonLvpm(config_for(unit.address)) as meter,
    ):
        assert meter._port.read_available(0.15) == b""


def test_a_port_in_use_by_us(emulated: EmulatedLvpm) -> None:
    with open_meter(config_for(emulated.address)):
        with pytest.raises(MeterBusy, match="in use"):
            open_meter(config_for(emulated.address))
        with pytest.raises(MeterBusy, match="in use"):
            SerialPort(emulated.address, kind="ina219")  # no lock file, but the port itself is taken
        with pytest.raises(MeterBusy, match="in use"):
            open_meter(config_for(emulated.address))  # the first refusal must not have freed it
    with open_meter(config_for(emulated.address)):
        pass


@pytest.mark.parametrize("lock", [fcntl.lockf, fcntl.flock])
def test_a_port_in_use_by_another_monsoon_client(
    emulated: EmulatedLvpm, lock: Callable[[object, int], None]
) -> None:
    """Mobly, CTS and Catapult take this lock file before they open the port."""
    path = Path("/tmp") / f"monsoon.{os.uname().sysname}.{Path(emulated.address).name}"
    script = (
        "import fcntl, sys\n"
        "f = open(sys.argv[1], 'w')\n"
        f"fcntl.{lock.__name__}(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(MeterBusy, match="in use"):
            open_meter(config_for(emulated.address))
        other.communicate()
    with open_meter(config_for(emulated.address)):
        pass


def test_unknown_options_and_channels_are_refused(emulated: EmulatedLvpm) -> None:
    with pytest.raises(ConfigError, match="usb_passthru: unknown key"):
        open_meter(config_for(emulated.address, options={"usb_passthru": True}))
    with pytest.raises(ConfigError, match="no voltage"):
        open_meter(config_for(emulated.address, channel="usb"))


def test_finding_the_instrument() -> None:
    monsoon = PortInfo("/dev/ttyACM1", "Mobile Device Power Monitor", None, None, "")
    other = PortInfo("/dev/ttyACM0", "u-blox GNSS receiver", 0x1546, 0x01A8, "")
    assert likely_ports([other, monsoon]) == ["/dev/ttyACM1"]
    with pytest.raises(MeterNotFound, match=r"there is /dev/ttyACM0 \(u-blox GNSS receiver\)"):
        likely_ports([other])
    with pytest.raises(MeterNotFound, match="no serial port at all"):
        likely_ports([])


def test_an_empty_port_scans_this_machine(emulated: EmulatedLvpm, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = [PortInfo(emulated.address, "Mobile Device Power Monitor", None, None, "")]
    monkeypatch.setattr("power.meters.lvpm_unit.scan_ports", lambda: ports)
    with open_meter(config_for("", serial="12345")) as meter:
        assert meter.info.port == emulated.address
    ports *= 2
    with pytest.raises(MeterNotFound, match="several instruments"):
        open_meter(config_for(""))
    with pytest.raises(MeterNotFound, match=r"none with serial number 1: .*not 1"):
        open_meter(config_for("", serial="1"))


def test_only_hardware_counts_as_real(emulated: EmulatedLvpm, tmp_path: Path) -> None:
    (tmp_path / "ttyUSB0").write_bytes(b"")
    (tmp_path / "ttyACM0").symlink_to(emulated.address)
    for path in (emulated.address, tmp_path / "ttyUSB0", tmp_path / "ttyACM0", tmp_path, "/dev/null"):
        assert not is_real_serial(str(path)), path
    assert not is_real_serial(str(tmp_path / "ttyACM7"))
    for port in scan_ports():  # what the kernel's drivers list, where there is any
        assert is_real_serial(port.path), port


def test_a_device_file_may_lie_about_its_name(emulated: EmulatedLvpm, tmp_path: Path) -> None:
    disguised = tmp_path / "ttyACM0"
    try:
        os.mknod(disguised, stat.S_IFCHR | 0o600, Path(emulated.address).stat().st_rdev)
    except PermissionError:
        pytest.skip("making a device file needs root")
    assert not is_real_serial(str(disguised))


@pytest.mark.parametrize("below", ["1-3:1.0", "1-3:1.0/ttyUSB0"])
def test_a_port_on_usb_knows_its_maker(tmp_path: Path, below: str) -> None:
    device = tmp_path / "devices/usb1/1-3"
    (device / below).mkdir(parents=True)
    (device.parent / "manufacturer").write_text("Linux 6.1 vhci_hcd\n")
    (device / "manufacturer").write_text("joulefleet (emulated)\n")
    port = tmp_path / "tty/ttyX0"
    port.mkdir(parents=True)
    (port / "device").symlink_to(device / below)
    assert usb_maker(port) == "joulefleet (emulated)"
    assert usb_maker(tmp_path / "tty/ttyS0") == ""


# Safety


def test_settings_are_made_and_read_back(emulated: EmulatedLvpm) -> None:
    with MonsoonLvpm(config_for(emulated.address)) as meter:
        assert meter.set_voltage(3.7) == pytest.approx(3.7)
        assert meter.set_voltage(4.309 - 0.01) == pytest.approx(4.29)  # never above what was asked for
        meter.set_current_limits(run_time_a=2.5, power_up_a=3.0)
        meter.set_usb_passthrough(UsbPassthrough.ON)
        status = meter.status()
        assert status.run_time_limit_a == pytest.approx(2.5, abs=8 / 1023)
        assert status.power_up_limit_a == pytest.approx(3.0, abs=8 / 1023)
        assert status.usb_passthrough == UsbPassthrough.ON
        meter.switch_output_off()
        assert not emulated.output_on
        assert meter.status().output_setting_v == pytest.approx(4.29)  # off leaves the setting


def test_what_the_configuration_forbids_is_refused_and_not_sent(emulated: EmulatedLvpm) -> None:
    with MonsoonLvpm(config_for(emulated.address, current_limit_a=3.0)) as meter:
        before = emulated.status
        for voltage_v in (4.31, 4.5, 100.0, 0.0, 1.9, float("nan"), float("inf")):
            with pytest.raises(UnsafeOutput):
                meter.set_voltage(voltage_v)
        for run_time_a, power_up_a in ((3.1, 1.0), (1.0, 3.1), (-1.0, 1.0), (1.0, float("nan"))):
            with pytest.raises(UnsafeOutput):
                meter.set_current_limits(run_time_a=run_time_a, power_up_a=power_up_a)
        meter.status()  # whatever had been sent would have been taken by now
        assert emulated.status == before
        assert emulated.output_on


def test_a_limit_below_one_step_is_refused_and_not_sent(emulated: EmulatedLvpm) -> None:
    before = emulated.status
    with MonsoonLvpm(config_for(emulated.address, current_limit_a=0.0078)) as meter:
        with pytest.raises(UnsafeOutput, match=r"0\.0078 A is outside the current limits .* 0\.00782 to 8 A"):
            switch_output_on(meter, meter.config, 4.1)
        meter.status()  # whatever had been sent would have been taken by now
        assert emulated.status == before
    with MonsoonLvpm(config_for(emulated.address, current_limit_a=0.0079)) as meter:
        assert switch_output_on(meter, meter.config, 4.1).limits.run_time_a == pytest.approx(8 / 1023)


def test_opening_streaming_and_closing_change_nothing(emulated: EmulatedLvpm) -> None:
    before = emulated.status
    with open_meter(config_for(emulated.address)) as meter:
        capture(meter, 0.2)
    with open_meter(config_for(emulated.address)):
        pass
    assert emulated.status == before
    assert emulated.output_on


def test_a_killed_client_leaves_the_output_as_it_was() -> None:
    script = (
        "import sys\n"
        "from power.meter import MeterConfig, open_meter\n"
        "meter = open_meter(MeterConfig.model_validate_json(sys.argv[1]))\n"
        "for block in meter.stream():\n    print(len(block), flush=True)\n"
    )
    with in_thread("monsoon-lvpm", EmulatorOptions()) as unit:
        assert isinstance(unit, EmulatedLvpm)
        config = config_for(unit.address)
        with MonsoonLvpm(config) as meter:
            meter.set_voltage(4.2)
        before = unit.status
        with subprocess.Popen(
            [sys.executable, "-c", script, config.model_dump_json()], stdout=subprocess.PIPE, text=True
        ) as client:
            assert client.stdout is not None
            assert int(client.stdout.readline()) > 0
            client.send_signal(signal.SIGKILL)
        time.sleep(0.3)
        assert unit.output_on
        assert unit.status == before
        with open_meter(config) as meter:  # it still samples into the void; the next client copes
            blocks = capture(meter, 0.2)
        assert joined(blocks, "voltage_v").mean() == pytest.approx(4.2, abs=VOLTAGE_STEP_V)
        assert unit.output_on


def test_passthrough_must_be_off(emulated: EmulatedLvpm) -> None:
    with MonsoonLvpm(config_for(emulated.address)) as meter:
        meter.set_usb_passthrough(UsbPassthrough.ON)
        with pytest.raises(MeterError, match="USB passthrough is not off"):
            capture(meter, 0.1)
        assert emulated.status.usb_passthrough == UsbPassthrough.ON  # refused, not repaired
    with open_meter(config_for(emulated.address, options={"usb_passthrough_off": True})) as willing:
        assert len(capture(willing, 0.1))
    assert emulated.status.usb_passthrough == UsbPassthrough.OFF


@pytest.mark.parametrize("no", [False, "False", "off", 0])
def test_passthrough_is_not_switched_by_a_no_in_any_form(emulated: EmulatedLvpm, no: object) -> None:
    with MonsoonLvpm(config_for(emulated.address, options={"usb_passthrough_off": no})) as meter:
        meter.set_usb_passthrough(UsbPassthrough.ON)
        with pytest.raises(MeterError, match="USB passthrough is not off"):
            capture(meter, 0.1)
    assert emulated.status.usb_passthrough == UsbPassthrough.ON
    with pytest.raises(ConfigError, match="usb_passthrough_off"):
        open_meter(config_for(emulated.address, options={"usb_passthrough_off": "perhaps"}))


def test_the_limits_reach_the_instrument_before_the_voltage(emulated: EmulatedLvpm) -> None:
    with MonsoonLvpm(config_for(emulated.address, current_limit_a=1.5)) as meter:
        setting = switch_output_on(meter, meter.config, 4.1)
        assert emulated.status.run_time_limit_a == setting.limits.run_time_a <= 1.5
        assert emulated.status.power_up_limit_a == setting.limits.power_up_a <= 1.5
        assert setting.limits.run_time_a == pytest.approx(1.5, abs=8 / 1023)
        assert emulated.status.output_setting_v == pytest.approx(4.1)


class Stubborn(EmulatedLvpm):
    """Does not take what a test says it does not."""

    ignores: tuple[int, ...] = ()
    takes_voltage: int | None = None

    def _set(self, what: int, value: int, now_ns: int) -> None:
        if what == 0x01 and value and self.takes_voltage is not None:
            value = self.takes_voltage
        super()._set(0x00 if what in self.ignores else what, value, now_ns)


@pytest.fixture
def stubborn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubborn]:
    monkeypatch.setattr("power.emulated.lvpm.instrument.EmulatedLvpm", Stubborn)
    with in_thread("monsoon-lvpm", EmulatorOptions()) as unit:
        assert isinstance(unit, Stubborn)
        yield unit


def test_no_voltage_from_an_instrument_that_keeps_a_higher_limit(stubborn: Stubborn) -> None:
    stubborn.ignores = (0x0A, 0x0B)  # the run-time limit, which is 3 A
    with (
        MonsoonLvpm(config_for(stubborn.address, current_limit_a=2.0)) as meter,
        pytest.raises(UnsafeOutput, match=r"run-time limit stays at 2\.9\d\d A, above current_limit_a 2"),
    ):
        switch_output_on(meter, meter.config, 4.2)
    assert stubborn.status.output_setting_v == pytest.approx(4.0)


def test_an_instrument_that_sets_another_voltage(stubborn: Stubborn) -> None:
    with MonsoonLvpm(config_for(stubborn.address)) as meter:
        stubborn.takes_voltage = 150
        with pytest.raises(MeterError, match=r"may be on at 3\.500 V"):
            meter.set_voltage(4.2)
        assert stubborn.output_on
        stubborn.takes_voltage = 240  # 4.4 V, and the device stands 4.3 V
        with pytest.raises(UnsafeOutput, match="it was switched off"):
            meter.set_voltage(4.2)
        assert not stubborn.output_on


def test_a_setting_that_differs_is_a_finding(emulated: EmulatedLvpm) -> None:
    with open_meter(config_for(emulated.address, voltage_v=3.7, voltage_max_v=4.2)) as meter:
        capture(meter, 0.1)
        (finding,) = remarkable(meter)
        assert (finding.code, finding.severity) == ("voltage_setting", "warning")
        assert "4.00 V" in finding.message
    with (
        MonsoonLvpm(config_for(emulated.address, voltage_v=3.7, voltage_max_v=3.8)) as meter,
        pytest.raises(UnsafeOutput, match=r"the output is on at 4\.00 V, above voltage_max_v 3\.8"),
    ):
        capture(meter, 0.1)
    with MonsoonLvpm(config_for(emulated.address)) as meter:
        meter.switch_output_off()
    with open_meter(config_for(emulated.address, voltage_v=3.7, voltage_max_v=3.8)) as meter:
        capture(meter, 0.1)  # an output that is off harms nobody, whatever its setting
        assert {finding.code for finding in remarkable(meter)} == {"output_off", "voltage_setting"}
    with MonsoonLvpm(config_for(emulated.address)) as meter:
        meter.set_voltage(4.0)
    with open_meter(config_for(emulated.address, current_limit_a=2.0)) as meter:
        capture(meter, 0.1)
        assert [finding.code for finding in remarkable(meter)] == ["current_limit_setting"]


def test_both_scalings_can_be_chosen_and_their_difference_is_in_the_interval(emulated: EmulatedLvpm) -> None:
    """With the resistors that firmware 20 has built in, 56.9 and 55.1 milliohm, they differ by 5 and 2 %."""
    means = {}
    for scale in ("stock", "resistors"):
        with open_meter(config_for(emulated.address, options={"scale": scale})) as meter:
            means[scale] = joined(capture(meter, 0.1), "current_a").mean()
            assert meter.info.facts["scale"] == scale
            fine, coarse = meter.info.accuracy.current
            assert fine.gain_rel == pytest.approx(0.02 + 0.05, abs=0.003)
            assert coarse.gain_rel == pytest.approx(0.02 + 0.022, abs=0.003)
            assert "differ by" in meter.info.accuracy.source
    assert means["stock"] == pytest.approx(0.25, abs=COARSE_STEP_A)
    assert means["resistors"] / means["stock"] == pytest.approx(3.1034 * 0.05 / 0.0551 / 2.88, rel=1e-6)


def test_a_refused_recording_leaves_the_folder_free(emulated: EmulatedLvpm, tmp_path: Path) -> None:
    config = config_for(emulated.address)
    with MonsoonLvpm(config) as meter:
        meter.set_usb_passthrough(UsbPassthrough.ON)
        with pytest.raises(MeterError, match="passthrough is not off"):
            record_meter(meter, tmp_path / "first", config=config, seconds=0.1)
    with MonsoonLvpm(config) as meter:
        meter.set_usb_passthrough(UsbPassthrough.AUTO)
        assert record_meter(meter, tmp_path / "first", config=config, seconds=0.1).n_samples > 100


def test_no_setting_changes_under_a_running_stream(emulated: EmulatedLvpm) -> None:
    with MonsoonLvpm(config_for(emulated.address)) as meter:
        stream = meter.stream()
        next(stream)
        with pytest.raises(MeterError, match="busy sampling"):
            meter.set_voltage(3.9)
        meter.stop()
        list(stream)
        assert meter.set_voltage(3.9) == pytest.approx(3.9)


def test_output_off_is_seen_in_the_samples(emulated: EmulatedLvpm) -> None:
    with MonsoonLvpm(config_for(emulated.address)) as meter:
        meter.switch_output_off()
        blocks = capture(meter, 0.1)
        assert joined(blocks, "current_a").max() == pytest.approx(0.0, abs=FINE_STEP_A)
        assert [finding.code for finding in remarkable(meter)] == ["output_off"]


# The emulator's own manners


def test_the_emulator_refuses_what_an_lvpm_cannot_do() -> None:
    for changes in (
        {"faults": ("chip_reset@1",)},
        {"serial": "SN-1"},
        {"serial": "70000"},
        {"rate_hz": 2500.0},
        {"variant": "black"},
    ):
        with pytest.raises(ConfigError):
            EmulatedLvpm(EmulatorOptions.model_validate(changes))


def test_the_emulator_is_quiet_after_stop(emulated: EmulatedLvpm) -> None:
    port = SerialPort(emulated.address, kind="monsoon-lvpm")
    try:
        port.write(bytes.fromhex("0802ffffffff03e8f1"))
        assert port.read_available(1.0)
        port.write(STOP)
        port.drain_input()
        assert port.read_available(0.1) == b""
    finally:
        port.close()


def test_the_emulated_process_says_where_it_is_and_what_it_did() -> None:
    from power.emulated.service import EmulatorProcess

    with EmulatorProcess("monsoon-lvpm", EmulatorOptions(serial="4711")) as unit:
        with open_meter(config_for(unit.address, serial="4711")) as meter:
            blocks = capture(meter, 0.3)
        statistics = unit.close()
    assert statistics["samples"] >= len(joined(blocks, "ticks")) > 1400
    assert statistics["discarded_bytes"] == 0
    assert json.dumps(statistics)
