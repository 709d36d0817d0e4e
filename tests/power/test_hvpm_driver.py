"""The HVPM driver against the emulated unit, behind the interface of libusb."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import usb1

from joulefleet.errors import (
    ConfigError,
    MeterBusy,
    MeterDisconnected,
    MeterError,
    MeterNotFound,
    MeterProtocolError,
    MissingExtra,
    UnsafeOutput,
)
from power.emulated.hvpm.front_end import ObservationQueue
from power.emulated.hvpm.instrument import EmulatedHvpm
from power.emulated.options import EmulatorOptions
from power.emulated.service import Emulator, EmulatorProcess, in_thread
from power.emulated.signals import read_truth
from power.emulated.usb.cable import ControlRequest, Operation, TransferError, UsbSocketServer
from power.emulated.usb.host import Answer, SocketHandle
from power.meter import MeterConfig, open_meter
from power.meters.hvpm_unit import USB_ID, HvpmUnit, restore_switch_interval, shorten_switch_interval
from power.meters.monsoon_hvpm import MAX_CALIBRATION_MS, MonsoonHvpm, decoder_for
from power.meters.safety import switch_output_on
from power.meters.scan import scan_instruments
from power.meters.usb.link import UsbId, UsbLink, libusb_version, scan_usb, usb_error
from power.model import SampleBlock, Severity
from power.recording import open_recording
from power.recording.recorder import FIRST_SAMPLE_S, record
from power.recording.redecode import compare_with_raw
from power.wire.hvpm_control import Opcode, Request, RequestType, UsbPassthrough, encode_set
from power.wire.hvpm_scaling import WINDOW
from tests.conftest import REPOSITORY

CALIBRATION_MS = 20  # five of them are over after 0.1 s
HV_FINE_STEP_A = 36.5e-3 / 33_000
HV_COARSE_STEP_A = 6.4 / 33_000
LV_COARSE_STEP_A = 3.1034 / 19_880
HV_VOLTAGE_STEP_V = 4 * 62.5e-6


def options_of(**changes: object) -> EmulatorOptions:
    """A unit that forgives a slow test machine, unless told otherwise."""
    return EmulatorOptions.model_validate({"variant": "patient", **changes})


def config_for(port: str, **changes: object) -> MeterConfig:
    values = {"voltage_v": 4.0, "voltage_max_v": 4.4, "current_limit_a": 8.0, **changes}
    given = values.pop("options", {})
    assert isinstance(given, dict)
    options = {"calibration_ms": CALIBRATION_MS, **given}
    return MeterConfig.model_validate({"kind": "monsoon-hvpm", "port": port, "options": options, **values})


def open_unit(port: str, **changes: object) -> MonsoonHvpm:
    meter = open_meter(config_for(port, **changes), any_settings=True)
    assert isinstance(meter, MonsoonHvpm)
    return meter


@pytest.fixture
def emulated() -> Iterator[EmulatedHvpm]:
    with in_thread("monsoon-hvpm", options_of()) as unit:
        assert isinstance(unit, EmulatedHvpm)
        yield unit


class Raw:
    """Keeps the undecoded bytes."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes, arrival_ns: int) -> None:
        self.data += data


def capture(meter: MonsoonHvpm, seconds: float, raw: Raw | None = None) -> list[SampleBlock]:
    """Stream until the samples span so many seconds."""
    blocks = []
    for block in meter.stream(raw):
        blocks.append(block)
        if block.ticks[-1] >= seconds * meter.info.rate_hz:
            meter.stop()
    return blocks


def measure(
    options: EmulatorOptions, seconds: float, **changes: object
) -> tuple[list[SampleBlock], MonsoonHvpm]:
    with in_thread("monsoon-hvpm", options) as unit, open_unit(unit.address, **changes) as meter:
        return capture(meter, seconds), meter


def observation_counts(data: bytes) -> list[int]:
    """How many observations each packet holds; a busy machine makes some that are not full."""
    counts, place = [], 0
    while place < len(data):
        counts.append(data[place + 3])
        place += 4 + 18 * counts[-1]
    return counts


def joined(blocks: list[SampleBlock], name: str) -> np.ndarray:
    return np.concatenate([getattr(block, name) for block in blocks])


def found(meter: MonsoonHvpm) -> dict[str, int]:
    """What is remarkable; a test machine that is busy pauses by itself."""
    usual = ("calibrating", "pause", "late_data")
    return {finding.code: finding.count for finding in meter.findings if finding.code not in usual}


# What it reads


def test_says_what_it_is(emulated: EmulatedHvpm) -> None:
    with open_unit(emulated.address) as meter:
        info = meter.info
        assert (info.kind, info.serial, info.rate_hz) == ("monsoon-hvpm", "20001", info.tick_hz)
        assert info.rate_hz == pytest.approx(4993.76, abs=0.01)  # the firmware's, not the nominal 5000
        assert info.emulated
        assert info.firmware.startswith("32")
        assert info.hardware.startswith("HVPM")
        assert info.facts["output_voltage_v"] == 4.0
        assert info.facts["main_fine_scale"] == 36_500
        assert info.facts["run_time_current_limit_a"] == pytest.approx(4.6, abs=0.001)
        assert "assumption" in info.accuracy.source
        assert meter.findings == ()


def test_each_sample_is_the_truth_to_one_step_across_both_ranges(tmp_path: Path) -> None:
    options = options_of(
        signal="square:low=0.012,high=0.6,period=0.05,voltage=4.0",
        tau_s=0.004,
        noise_a=0.0005,
        skew_ppm=80,
        truth=tmp_path / "truth",
    )
    blocks, meter = measure(options, 1.0)
    truth = read_truth(tmp_path / "truth")
    ticks = joined(blocks, "ticks")
    expected = truth["current_a"][ticks]
    step = np.where(expected < 0.067, HV_FINE_STEP_A, HV_COARSE_STEP_A)  # fine ends at 67.4 mA
    assert np.all(np.abs(joined(blocks, "current_a") - expected) <= 0.51 * step)
    assert (expected < 0.067).any()
    assert (expected > 0.3).any()
    assert np.abs(joined(blocks, "voltage_v") - 4.0).max() <= HV_VOLTAGE_STEP_V
    # The emulated crystal's own times, known to the nanosecond, against the fitted ones.
    assert np.abs(meter.timebase.to_host_ns(ticks) - truth["t_ns"][ticks]).max() < 50e6
    assert found(meter) == {}


@pytest.mark.parametrize("channel", ["main", "usb", "aux"])
@pytest.mark.parametrize("model", ["hv", "lv"])
def test_both_models_and_all_channels(model: str, channel: str) -> None:
    current_a = 0.1 if channel == "aux" else 0.25
    options = options_of(
        variant=f"patient,{model},{channel}", signal=f"constant:current={current_a},voltage=4.0"
    )
    blocks, meter = measure(options, 0.25, channel=channel)
    assert meter.info.hardware.startswith("LVPM" if model == "lv" else "HVPM")
    assert joined(blocks, "current_a") == pytest.approx(current_a, abs=LV_COARSE_STEP_A)
    assert joined(blocks, "voltage_v") == pytest.approx(4.0, abs=HV_VOLTAGE_STEP_V)
    assert found(meter).keys() == ({"aux_voltage"} if channel == "aux" else set())


def test_a_channel_without_load_reads_nothing(emulated: EmulatedHvpm) -> None:
    with open_unit(emulated.address, channel="usb") as meter:
        assert np.abs(joined(capture(meter, 0.2), "current_a")).max() < 1e-6


def test_the_voltage_belongs_to_the_channel(emulated: EmulatedHvpm) -> None:
    """The unit may have been left with the aux voltage in the field that holds the main voltage."""
    with open_unit(emulated.address, channel="aux") as meter:
        capture(meter, 0.15)
    with open_unit(emulated.address) as meter:
        capture(meter, 0.15)
        assert meter._unit.get(Opcode.VOLTAGE_CHANNEL) == 0


def test_two_monitors_at_once_do_not_mix() -> None:
    one = options_of(serial="111", signal="constant:current=0.25,voltage=4.0")
    other = options_of(serial="222", variant="patient,lv", signal="constant:current=0.5,voltage=3.7")
    with in_thread("monsoon-hvpm", one) as a, in_thread("monsoon-hvpm", other) as b:
        meters = [open_unit(unit.address, voltage_v=3.7) for unit in (a, b)]
        blocks: list[list[SampleBlock]] = [[], []]

        def run(i: int) -> None:
            blocks[i] = capture(meters[i], 0.6)

        threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for meter in meters:
            meter.close()
    assert [meter.info.serial for meter in meters] == ["111", "222"]
    assert joined(blocks[0], "current_a") == pytest.approx(0.25, abs=HV_COARSE_STEP_A)
    assert joined(blocks[1], "current_a") == pytest.approx(0.5, abs=LV_COARSE_STEP_A)
    assert joined(blocks[1], "voltage_v") == pytest.approx(3.7, abs=HV_VOLTAGE_STEP_V)


def test_a_recording_decodes_again_to_the_same_samples(tmp_path: Path) -> None:
    options = options_of(signal="square:low=0.02,high=0.3,period=0.03,voltage=4.0", noise_a=0.001)
    with in_thread("monsoon-hvpm", options) as unit, open_unit(unit.address) as meter:
        record(meter, tmp_path / "recording", config=meter.config, seconds=0.5)
    recording = open_recording(tmp_path / "recording")
    result = compare_with_raw(recording)
    assert result.first_difference is None
    assert result.n_decoded == result.n_stored == recording.record.n_samples > 1000
    assert recording.record.dropped == 0
    assert len(recording) > 20, "each calibration ends a batch, because it takes the place of samples"


# What goes wrong in the stream


def test_lost_packets_over_current_and_damage(tmp_path: Path) -> None:
    options = options_of(
        signal="square:low=0.1,high=0.5,period=0.2,voltage=4.0",
        faults=("lost_packets@0.2:4", "over_current@0.3:2", "truncated_frame@0.4:1"),
        truth=tmp_path / "truth",
    )
    blocks, meter = measure(options, 0.6)
    findings = {finding.code: finding for finding in meter.findings}
    assert findings["lost_packets"].count == 5
    assert findings["over_current"].count == 2
    assert findings["over_current"].severity is Severity.ERROR
    # Half a packet, which counts as lost at its place: nothing else is wrong with the recording.
    assert (findings["broken_read"].count, findings["broken_read"].severity) == (1, Severity.WARNING)
    assert "corrupt_bytes" not in findings
    assert sum(block.dropped_before or 0 for block in blocks) == 15
    expected = read_truth(tmp_path / "truth")["current_a"][joined(blocks, "ticks")]
    assert joined(blocks, "current_a") == pytest.approx(expected, abs=HV_COARSE_STEP_A)


def test_the_drop_counter_wraps_and_starts_without_a_count(tmp_path: Path) -> None:
    options = options_of(
        faults=("drop_counter_wrap@0.4:500",),
        signal="square:low=0.1,high=0.5,period=0.2,voltage=4.0",
        truth=tmp_path / "truth",
    )
    blocks, meter = measure(options, 0.9)
    assert sum(block.dropped_before or 0 for block in blocks) == 500
    truth = read_truth(tmp_path / "truth")
    ticks = joined(blocks, "ticks")
    # The count rises while up to 16 older samples are still in the unit's queue.
    after_gap = np.concatenate(
        [block.first_index + np.arange(16) for block in blocks if block.dropped_before]
    )
    sure = ~np.isin(ticks, after_gap)
    expected = truth["current_a"][ticks[sure]]
    assert joined(blocks, "current_a")[sure] == pytest.approx(expected, abs=HV_COARSE_STEP_A)
    assert found(meter) == {"gap": 500}


def test_recalibration_in_the_middle_is_followed() -> None:
    blocks, meter = measure(options_of(faults=("recalibrate@0.3",)), 0.8)
    ticks, current = joined(blocks, "ticks"), joined(blocks, "current_a")
    (noticed,) = [f.first_index for f in meter.findings if f.code == "recalibrated"]
    assert noticed is not None
    period = CALIBRATION_MS * 5
    settled = (ticks < noticed - period) | (ticks > noticed + 5 * period)
    assert current[settled] == pytest.approx(0.25, abs=HV_COARSE_STEP_A)
    assert ticks[settled].min() < noticed < ticks[settled].max()
    assert np.abs(current - 0.25).max() > 0.01, "the fault does something"


def test_a_stalled_unit_is_late_or_has_lost_samples() -> None:
    patient, meter = measure(options_of(faults=("stall@0.2:0.3",)), 0.7)
    assert found(meter) == {}
    assert np.diff(joined(patient, "ticks")).max() == 2  # a calibration takes the place of a sample
    strict, meter = measure(options_of(variant="", faults=("stall@0.2:0.3",)), 0.7)
    lost = sum(block.dropped_before or 0 for block in strict)
    assert lost > 1400  # 0.3 s are 1500 samples, of which 16 fit the queue; a busy machine adds some
    assert found(meter)["gap"] == lost


def test_unplugging_delivers_everything_first() -> None:
    raw = Raw()
    blocks: list[SampleBlock] = []
    options = options_of(faults=("disconnect@0.5",))
    with in_thread("monsoon-hvpm", options) as unit, open_unit(unit.address) as meter:
        with pytest.raises(MeterDisconnected, match="went away") as caught:
            blocks.extend(meter.stream(raw))
        sent = unit.statistics["packets"]
    assert "cable" in caught.value.hint
    counts = observation_counts(raw.data)
    assert sent - 1 <= len(counts) <= sent  # one may be on its way when the cable is pulled
    ends_with_a_calibration = bool(raw.data[-1] & 0x30)  # which takes the place of a sample
    assert joined(blocks, "ticks")[-1] == sum(counts) - 1 - ends_with_a_calibration
    again = decoder_for(meter.info).feed(raw.data, 0)
    assert sum(len(part.ticks) for part in again) == sum(len(block) for block in blocks)


class Pulled:
    """A device whose cable is pulled by its third read, while it answers a control transfer."""

    def __init__(self) -> None:
        self.reads = 0
        self.answering, self.over = threading.Event(), threading.Event()
        self.server = UsbSocketServer(self)

    def open_error(self) -> int:
        return 0

    def control(self, request: ControlRequest) -> bytes:
        self.answering.set()
        self.over.wait(10)
        return b""

    def bulk_read(self, size: int, requested_ns: int, deadline_ns: int) -> bytes:
        self.answering.wait(10)
        self.reads += 1
        if self.reads == 3:
            self.server.close()
        return bytes(58)

    def reset(self) -> None: ...


def test_no_packet_leaves_a_unit_whose_cable_was_pulled() -> None:
    """Reads that were queued would take packets that nobody gets, and count them as sent."""
    unit = Pulled()
    handle = SocketHandle(unit.server.path)
    handle.call(Operation.CLAIM)
    (reader,) = [thread for thread in threading.enumerate() if thread.name == "usb-reads"]
    answers: list[Answer] = []
    for _ in range(20):
        handle.queue_read(0x81, 64, answers.append)
    with pytest.raises(TransferError, match=str(errno.ENODEV)):
        handle.control(ControlRequest(RequestType.OUT, Request.STOP, 0, 0, 0, b""), 1000)
    handle.call_back()
    handle.close()
    reader.join(10)
    unit.over.set()
    assert [(len(answer.data), answer.code) for answer in answers] == [(58, 0)] * 2 + [(0, errno.ENODEV)] * 18
    assert unit.reads == 3


def test_a_unit_that_dies_while_streaming() -> None:
    with EmulatorProcess("monsoon-hvpm", options_of()) as process, open_unit(process.address) as meter:
        blocks = []
        with pytest.raises(MeterDisconnected):
            for block in meter.stream():
                blocks.append(block)
                if len(blocks) == 10:
                    process.kill()
        assert len(blocks) >= 10


def test_nothing_is_left_behind(emulated: EmulatedHvpm) -> None:
    def held() -> tuple[int, int]:
        here = [t for t in threading.enumerate() if t.name == "meter-reader"]
        return len(here), len(list(Path("/proc/self/fd").iterdir()))

    def ended() -> bool:  # threads of the emulated cable end a moment later
        return not [t for t in threading.enumerate() if t.name in ("usb-host", "usb-reads")]

    before = held()
    for stop_early in (False, True):
        with open_unit(emulated.address) as meter:
            if stop_early:
                next(meter.stream())
            else:
                capture(meter, 0.15)
    deadline = time.monotonic() + 5
    while not ended() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert held() == before
    assert ended()


# Finding and opening it


def test_no_unit_on_the_real_bus() -> None:
    if scan_usb(USB_ID):
        pytest.skip("a real unit is plugged in")
    with pytest.raises(MeterNotFound, match="no USB device 2ab9:0001") as caught:
        open_unit("")
    assert "plugged in" in caught.value.hint


def test_no_such_emulated_unit(tmp_path: Path) -> None:
    with pytest.raises(MeterNotFound, match="no USB device"):
        open_unit(f"usb-emulated:{tmp_path / 'nothing'}")


def test_an_address_that_is_none() -> None:
    with pytest.raises(MeterNotFound, match="no USB address"):
        open_unit("/dev/ttyACM0")


def test_no_permission_says_what_to_do() -> None:
    with in_thread("monsoon-hvpm", options_of(variant="forbidden")) as unit:
        with pytest.raises(MeterNotFound, match="no permission") as caught:
            open_unit(unit.address)
        assert 'ATTR{idVendor}=="2ab9"' in caught.value.hint
        (device,) = scan_usb(USB_ID, unit.address)
        assert "no permission" in device.problem


def test_the_serial_number_decides() -> None:
    with (
        in_thread("monsoon-hvpm", options_of(serial="111")) as one,
        in_thread("monsoon-hvpm", options_of(serial="222")) as other,
    ):
        bus = one.address + os.pathsep + other.address.removeprefix("usb-emulated:")
        assert [device.serial for device in scan_usb(USB_ID, bus)] == ["111", "222"]
        with open_unit(bus, serial="0222") as meter:
            assert meter.info.serial == "222"
        with pytest.raises(MeterNotFound, match="several instruments: 111, 222"):
            open_unit(bus)
        with pytest.raises(MeterNotFound, match="no instrument with serial number 333, but 111, 222"):
            open_unit(bus, serial="333")


def test_busy_until_closed(emulated: EmulatedHvpm) -> None:
    with open_unit(emulated.address):
        with pytest.raises(MeterBusy, match="in use") as caught:
            open_unit(emulated.address)
        assert caught.value.transient
        assert [device.problem for device in scan_usb(USB_ID, emulated.address)] == [""]
    with open_unit(emulated.address) as meter:
        meter.close()
        meter.close()
        with pytest.raises(MeterError, match="is closed"):
            meter.output_voltage_v()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (usb1.USBErrorAccess, MeterNotFound),
        (usb1.USBErrorBusy, MeterBusy),
        (usb1.USBErrorNoDevice, MeterDisconnected),
        (usb1.USBErrorIO, MeterDisconnected),
        (usb1.USBErrorTimeout, MeterProtocolError),
        (usb1.USBErrorPipe, MeterProtocolError),
        (usb1.USBErrorOverflow, MeterProtocolError),
    ],
)
def test_errors_of_libusb_are_typed(error: type[usb1.USBError], kind: type[MeterError]) -> None:
    typed = usb_error(UsbId("monsoon-hvpm", 1, 2), "usb bus 1 address 2", error())
    assert type(typed) is kind
    assert typed.hint


def test_without_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("libusb_package.get_library_path", lambda: tmp_path / "libusb-1.0.so")
    for use in (libusb_version, lambda: scan_usb(USB_ID), lambda: open_unit("")):
        with pytest.raises(MeterError, match=r"libusb 1\.0 does not load .*cannot open") as caught:
            use()
        assert "apt install libusb-1.0-0" in caught.value.hint
    (note,) = scan_instruments().notes
    assert "libusb 1.0 does not load" in note


@pytest.mark.parametrize("package", ["usb1", "libusb_package"])
def test_without_the_packages(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"USB support is not installed \({package}\)") as caught:
        open_unit("")
    assert ".[monsoon]" in caught.value.hint
    assert "not installed" in scan_instruments().notes[0]


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="calibration_s: unknown key") as caught:
        open_unit("", options={"calibration_s": 1})
    assert "calibration_ms" in caught.value.hint
    with pytest.raises(ConfigError, match="calibration_ms: Input should be a valid integer"):
        open_unit("", options={"calibration_ms": True})
    for never in (0, MAX_CALIBRATION_MS + 1):
        with pytest.raises(ConfigError, match=r"calibration_ms: Input should be (greater|less) than"):
            open_unit("", options={"calibration_ms": never})


def test_a_recording_waits_for_the_slowest_calibration() -> None:
    assert WINDOW * MAX_CALIBRATION_MS * 1e-3 < FIRST_SAMPLE_S - 3.0


def test_a_unit_that_a_dead_client_left_sampling(emulated: EmulatedHvpm) -> None:
    handle = SocketHandle(emulated.address.removeprefix("usb-emulated:"))
    handle.control(ControlRequest(RequestType.OUT, Request.START, 1250, 0, 4, b"\xff\xff\xff\xff"), 1000)
    handle.close()
    with open_unit(emulated.address) as meter:
        assert len(joined(capture(meter, 0.2), "ticks")) > 300


# The output


def test_voltage_is_set_only_within_the_limits(emulated: EmulatedHvpm) -> None:
    with open_unit(emulated.address, voltage_max_v=4.2) as meter:
        assert meter.set_voltage(4.2) == pytest.approx(4.2, abs=1e-6)
        for voltage_v in (4.21, float("nan")):
            with pytest.raises(UnsafeOutput, match="voltage_max_v"):
                meter.set_voltage(voltage_v)
        with pytest.raises(UnsafeOutput, match=r"0\.8 to 13\.5"):
            meter.set_voltage(0.5)
        assert meter.output_voltage_v() == pytest.approx(4.2, abs=1e-6)
        meter.switch_output_off()
        assert meter.output_voltage_v() == 0


def test_an_output_that_is_off_reads_nothing(emulated: EmulatedHvpm) -> None:
    with open_unit(emulated.address) as meter:
        meter.switch_output_off()
        blocks = capture(meter, 0.2)
        assert np.abs(joined(blocks, "current_a")).max() < 1e-6
        assert found(meter)["output_off"] > 10


def test_the_lvpm_has_its_own_range() -> None:
    with (
        in_thread("monsoon-hvpm", options_of(variant="lv")) as unit,
        open_unit(unit.address, voltage_max_v=10) as meter,
    ):
        with pytest.raises(UnsafeOutput, match=r"2\.01 to 4\.55"):
            meter.set_voltage(5.0)
        meter.set_current_limits(run_time_a=3.0, power_up_a=5.0)
        assert meter._unit.facts()["run_time_current_limit_a"] == pytest.approx(3.0, abs=0.005)


def test_current_limits_are_checked(emulated: EmulatedHvpm) -> None:
    with open_unit(emulated.address, current_limit_a=3.0) as meter:
        assert found(meter) == {"current_limit_setting": 1}
        meter.set_current_limits(run_time_a=2.5, power_up_a=3.0)
        for pair in ((3.1, 1.0), (1.0, 3.1), (-0.1, 1.0), (float("nan"), 1.0)):
            with pytest.raises(UnsafeOutput):
                meter.set_current_limits(run_time_a=pair[0], power_up_a=pair[1])
        assert meter._unit.facts()["run_time_current_limit_a"] == pytest.approx(2.5, abs=0.001)


@pytest.mark.parametrize("variant", ["patient", "patient,lv"])
@pytest.mark.parametrize("limit_a", [0.7531, 2.0, 3.0, 4.6, 20.0])
def test_the_limits_reach_the_unit_and_never_exceed_the_device(variant: str, limit_a: float) -> None:
    with (
        in_thread("monsoon-hvpm", options_of(variant=variant)) as unit,
        open_unit(unit.address, current_limit_a=limit_a) as meter,
    ):
        setting = switch_output_on(meter, meter.config, 4.1)
        facts = meter._unit.facts()
        wanted_a = min(limit_a, meter.current_limit_range_a()[1])
        for kept_a in (facts["run_time_current_limit_a"], facts["power_up_current_limit_a"]):
            assert wanted_a - 8 / 1023 <= kept_a <= wanted_a + 5e-5  # the facts have four decimals
        assert setting.limits.run_time_a <= limit_a
        assert setting.voltage_v == pytest.approx(4.1, abs=1e-6)


@pytest.mark.parametrize(("variant", "step_a"), [("patient", 15.625 / 61695), ("patient,lv", 8 / 1023)])
def test_a_limit_below_one_step_is_refused_and_not_sent(variant: str, step_a: float) -> None:
    with in_thread("monsoon-hvpm", options_of(variant=variant)) as unit:
        with open_unit(unit.address, current_limit_a=step_a * 0.99) as meter:
            before = meter.output_setting()
            with pytest.raises(UnsafeOutput, match="outside the current limits"):
                switch_output_on(meter, meter.config, 4.1)
            assert meter.output_setting() == before
        with open_unit(unit.address, current_limit_a=step_a) as meter:
            assert switch_output_on(meter, meter.config, 4.1).limits.power_up_a == pytest.approx(step_a)


def test_a_unit_that_keeps_another_voltage(emulated: EmulatedHvpm, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_unit(emulated.address) as meter:
        honest = HvpmUnit.write

        def doubled(unit: HvpmUnit, opcode: Opcode, value: int) -> None:
            honest(unit, opcode, value * 2 if opcode is Opcode.MAIN_VOLTAGE else value)

        monkeypatch.setattr(HvpmUnit, "write", doubled)
        with pytest.raises(UnsafeOutput, match=r"reads 8\.200 V after 4\.100 V was set.*switched off"):
            meter.set_voltage(4.1)
        assert meter.output_voltage_v() == 0


def test_settings_that_differ_are_findings_not_changes(emulated: EmulatedHvpm) -> None:
    with open_unit(emulated.address, voltage_v=3.7, voltage_max_v=4.2) as meter:
        capture(meter, 0.1)
        (finding,) = meter.findings
        assert (finding.code, finding.severity) == ("voltage_setting", Severity.WARNING)
    with open_unit(emulated.address, voltage_v=3.7, voltage_max_v=3.9) as meter:
        with pytest.raises(UnsafeOutput, match=r"the output is on at 4\.00 V, above voltage_max_v 3\.9"):
            next(meter.stream())
        assert meter.output_voltage_v() == 4.0


def test_the_dac_check_is_a_warning_with_an_override() -> None:
    with in_thread("monsoon-hvpm", options_of(variant="bad-dac")) as unit:
        with open_unit(unit.address) as meter:
            assert found(meter) == {"dac_calibration": 1}
            with pytest.raises(UnsafeOutput, match="DAC check") as caught:
                meter.set_voltage(4.1)
            assert "ignore_dac_check" in caught.value.hint
            assert meter.output_voltage_v() == 4.0
        with open_unit(unit.address, options={"ignore_dac_check": True}) as meter:
            assert found(meter) == {"dac_calibration": 1}
            assert meter.set_voltage(4.1) == pytest.approx(4.1, abs=1e-6)


def test_passthrough_must_be_off_in_a_stream(emulated: EmulatedHvpm) -> None:
    with open_unit(emulated.address) as meter:
        meter.set_usb_passthrough(UsbPassthrough.ON)
        with pytest.raises(MeterError, match="passthrough is not off"):
            next(meter.stream())
    with open_unit(emulated.address, options={"usb_passthrough_off": True}) as meter:
        assert len(capture(meter, 0.15)) > 0
        assert meter._unit.get(Opcode.USB_PASSTHROUGH) == UsbPassthrough.OFF


def test_settings_are_out_of_reach_while_sampling(emulated: EmulatedHvpm) -> None:
    with open_unit(emulated.address) as meter:
        stream = meter.stream()
        next(stream)
        with pytest.raises(MeterError, match="busy sampling"):
            meter.set_voltage(4.1)
        stream.close()
        assert meter.output_voltage_v() == 4.0


CLIENT = """
import json, sys
from power.meter import MeterConfig, open_meter
config = MeterConfig.model_validate_json(sys.argv[1])
meter = open_meter(config)
meter.set_voltage(4.2)
for block in meter.stream():
    print(len(block), flush=True)
"""


def test_a_killed_client_leaves_the_output_as_it_was() -> None:
    with EmulatorProcess("monsoon-hvpm", options_of()) as process:
        command = [sys.executable, "-c", CLIENT, config_for(process.address).model_dump_json()]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
        assert client.stdout is not None
        assert int(client.stdout.readline()) > 0
        client.send_signal(signal.SIGKILL)
        client.wait()
        client.stdout.close()
        with open_unit(process.address) as meter:
            assert meter.output_voltage_v() == pytest.approx(4.2, abs=1e-6)
        with open_unit(process.address) as meter:  # and closing has not changed it either
            assert meter.output_voltage_v() == pytest.approx(4.2, abs=1e-6)
            assert meter._unit.get(Opcode.USB_PASSTHROUGH) == UsbPassthrough.AUTO
            assert joined(capture(meter, 0.2), "voltage_v") == pytest.approx(4.2, abs=HV_VOLTAGE_STEP_V)


# Odd values of the unit


def write_register(unit: Emulator, opcode: Opcode, value: int) -> None:
    handle = SocketHandle(unit.address.removeprefix("usb-emulated:"))
    transfer = encode_set(opcode, value)
    request = ControlRequest(
        RequestType.OUT, Request.VALUE, transfer.w_value, transfer.w_index, 4, transfer.data
    )
    handle.control(request, 1000)
    handle.close()


def test_a_zero_offset_of_minus_two_is_not_the_error_word(emulated: EmulatedHvpm) -> None:
    write_register(emulated, Opcode.MAIN_FINE_ZERO_OFFSET, -2)
    with open_unit(emulated.address) as meter:
        assert meter.info.facts["main_fine_zero_offset"] == -2


def test_a_unit_without_its_scale_is_refused(emulated: EmulatedHvpm) -> None:
    write_register(emulated, Opcode.MAIN_COARSE_SCALE, 0)
    with pytest.raises(MeterError, match="lost the scale"):
        open_unit(emulated.address)
    with open_unit(emulated.address, channel="usb"):
        pass


# The emulator itself


def test_the_queue_loses_what_a_late_host_did_not_read() -> None:
    queue = ObservationQueue()
    for i in range(40):
        queue.add(1000 + i, bytes([i]))
    queue.host_was_away(until_ns=1029)  # 30 observations, 16 of which fit
    assert queue.dropped == 14
    packets = [queue.take(3, 1040) for _ in range(9)]
    # One observation was in a packet already; behind it the oldest gave way.
    assert [(dropped, observations[0][0]) for dropped, observations in packets] == [
        (0, 0),
        *((14, first) for first in (15, 18, 21, 24, 27, 30, 33, 36)),
    ]


def test_the_queue_forgives_its_own_lateness() -> None:
    queue = ObservationQueue()
    for i in range(100):
        queue.add(1000 + i, b"")
    queue.host_was_away(until_ns=999)  # the read was waiting before the first of them
    for _ in range(33):
        queue.take(3, 1100)
        queue.host_was_away(until_ns=1101)
    assert queue.dropped == 0


def test_short_absences_add_up() -> None:
    queue = ObservationQueue()
    now = taken = 0
    for _ in range(10):
        for i in range(5):
            queue.add(now + i + 1, b"")
        now += 5
        queue.host_was_away(until_ns=now)
        before, packet = taken, queue.take(3, now)[1]
        taken += len(packet)
    assert queue.dropped == 10 * 5 - before - 16 > 0


@pytest.mark.parametrize("transfers", [1, 32])
def test_a_late_host_loses_what_fits_no_transfer_and_knows_how_much(transfers: int) -> None:
    with in_thread("monsoon-hvpm", options_of(variant="")) as unit:
        unit_side = HvpmUnit(UsbLink(USB_ID, port=unit.address))
        unit_side.start(CALIBRATION_MS, transfers=transfers)
        packets: list[bytes] = []
        for i in range(400):
            packets += unit_side.read()
            if i in (250, 300):
                time.sleep(0.05)
        unit_side.stop()
        unit_side.close()
        dropped = unit.statistics["dropped"]
    (told,) = struct.unpack_from("<H", packets[-1])
    # The emulator makes samples every 5 ms, so that the last transfer is filled up to 25 samples late. On a
    # busy machine some more may be lost behind the last packet.
    assert dropped >= told >= 2 * (250 - 16 - 3 * transfers - 25)
    assert unit.statistics["discarded_bytes"] == 18 * dropped


def test_the_number_of_samples_may_be_limited(emulated: EmulatedHvpm) -> None:
    handle = SocketHandle(emulated.address.removeprefix("usb-emulated:"))
    unit = UsbLink(USB_ID, port=emulated.address)
    handle.control(ControlRequest(RequestType.OUT, Request.START, 1250, 0, 4, struct.pack("<I", 100)), 1000)
    reads, packets = unit.queue_reads(0x81, 64, transfers=4), []
    while some := reads.read(0.1):
        packets += some
    unit.close()
    handle.close()
    assert sum(packet[3] for packet in packets) == 100
    assert packets[-1][3] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "red"}, "no variant 'red'"),
        ({"rate_hz": 1000.0}, "5000 Hz only"),
        ({"faults": ("bad_checksum@1",)}, "no fault 'bad_checksum'"),
        ({"serial": "A1"}, "serial number 'A1'"),
        ({"serial": "70000"}, "serial number '70000'"),
    ],
)
def test_the_emulator_refuses_what_the_unit_does_not_have(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EmulatedHvpm(EmulatorOptions.model_validate(options))


NOT_WHOLE = b"\x07\0\0\0\x01\0\0\0\x05ab"
"""A bulk read without most of its fields."""


def test_the_socket_survives_nonsense(emulated: EmulatedHvpm) -> None:
    path = emulated.address.removeprefix("usb-emulated:")
    for message in (
        b"\xff\xff\xff\xff",
        b"\0\0\0\0",
        b"\x01\0\0\0\x63",
        b"\x05\0\0\0\x01\0\0\0\x63",
        NOT_WHOLE,
    ):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            client.sendall(message)
            client.settimeout(2)
            answer = client.recv(100)
            assert answer == b"" or answer[8:12] == struct.pack("<I", errno.EINVAL)
    with open_unit(emulated.address) as meter:
        assert meter.info.serial == "20001"


def test_requests_that_the_unit_does_not_know_stall(emulated: EmulatedHvpm) -> None:
    handle = SocketHandle(emulated.address.removeprefix("usb-emulated:"))
    wrong = [
        ControlRequest(RequestType.OUT, Request.VALUE, 1, 0x77, 4, b"\1\0\0\0"),
        ControlRequest(RequestType.OUT, Request.VALUE, 1, Opcode.FIRMWARE_VERSION, 4, b"\1\0\0\0"),
        ControlRequest(0x42, 0x33, 0, 0, 0, b""),
    ]
    for request in wrong:
        with pytest.raises(TransferError) as caught:
            handle.control(request, 1000)
        assert caught.value.code == errno.EPIPE
    handle.close()


def test_as_a_process_it_prints_its_address_and_its_counters() -> None:
    with EmulatorProcess("monsoon-hvpm", options_of(serial="77")) as process:
        assert process.address.startswith("usb-emulated:/")
        with open_unit(process.address, serial="77") as meter:
            capture(meter, 0.2)
        statistics = process.close()
    assert statistics["samples"] >= 1000
    assert statistics["discarded_bytes"] == 0
    assert json.dumps(statistics)


def test_shorter_turns_last_until_the_last_reader_is_done() -> None:
    usual_s = sys.getswitchinterval()
    shorten_switch_interval(0.0005)
    shorten_switch_interval(0.0005)
    restore_switch_interval()
    assert sys.getswitchinterval() == pytest.approx(0.0005)
    restore_switch_interval()
    assert sys.getswitchinterval() == pytest.approx(usual_s)
