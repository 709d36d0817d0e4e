"""Our drivers on a real Linux kernel: usbfs and cdc_acm, with emulated instruments at the end of the bus.

What arrives in the guest is compared with what left the USB/IP server, byte by byte, and with the load that
the emulator was given, sample by sample.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from power import Recording, open_recording
from power.emulated.signals import read_truth
from tests.kernel.bench import HVPM, INA219, INSTRUMENTS, LVPM, REFLASHED, SPARE, Bench, Instrument
from tests.kernel.guest import Done

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(2700)]

MONSOONS = (HVPM, REFLASHED, LVPM)
NOBODY = 65534
MAX_TAIL_BYTES = 100_000
every_instrument = pytest.mark.parametrize(
    "instrument", INSTRUMENTS, ids=lambda each: f"{each.kind}-{each.serial}"
)
every_monsoon = pytest.mark.parametrize("instrument", MONSOONS, ids=lambda each: f"{each.kind}-{each.serial}")

SCRIPTS = "/opt/joulefleet/tests/kernel"

Note = Callable[[str, object], None]


class Run:
    """One recording: what was sent and what the load was since it began."""

    def __init__(self, bench: Bench, instrument: Instrument, name: str) -> None:
        self.bench, self.instrument = bench, instrument
        self.path = f"/tmp/{name}-{instrument.bus_id}"
        self._sent = len(bench.gadgets[instrument.bus_id].sent)
        self._truth = len(read_truth(bench.truths[instrument.bus_id]))

    @property
    def words(self) -> list[str]:
        return ["joulefleet", "meter", "record", *self.instrument.words, "--out", self.path, "--json"]

    @property
    def sent(self) -> bytes:
        return b"".join(self.bench.gadgets[self.instrument.bus_id].sent[self._sent :])

    def wait_until_streaming(self, least_bytes: int) -> None:
        deadline = time.monotonic() + 60
        while len(self.sent) < least_bytes:
            assert time.monotonic() < deadline, "nothing streams"
            time.sleep(0.05)

    def check(self, folder: Path, *, may_lose: bool = False) -> tuple[Recording, dict[str, Any]]:
        """Fetch the recording and compare it; returns numbers for the record."""
        recording = open_recording(self.bench.guest.fetch(self.path, folder))
        raw = (recording.folder / "raw.bin").read_bytes()
        sent = self.sent
        begin = sent.find(raw)
        assert begin >= 0, "the bytes that arrived are not those that were sent, in their order"
        blocks = list(recording.blocks())
        ticks = np.concatenate([block.ticks for block in blocks])
        current_a = np.concatenate([block.current_a for block in blocks])
        voltage_v = np.concatenate([block.voltage_v for block in blocks])
        truth = read_truth(self.bench.truths[self.instrument.bus_id])[self._truth :]
        wrong = wrong_samples(self.instrument, ticks, current_a, truth)
        assert wrong == 0
        assert np.abs(voltage_v - truth["voltage_v"][0]).max() < 0.02
        lost = sum(block.dropped_before for block in blocks)
        assert may_lose or not lost
        assert recording.record.provenance("it").origin.value == "emulated"
        tail = len(sent) - begin - len(raw)
        assert tail < MAX_TAIL_BYTES  # what was on its way when the stream was stopped
        return recording, {
            "samples": len(ticks),
            "bytes": len(raw),
            "bytes_behind_the_end": tail,
            "wrong": wrong,
            "lost": lost,
        }


def wrong_samples(instrument: Instrument, ticks: np.ndarray, current_a: np.ndarray, truth: np.ndarray) -> int:
    """Samples that are not what the load was; all of a recording lie at one offset in the truth."""
    if instrument is INA219:  # each reading is an average on the chip's own clock: level and order only
        levels = np.array([instrument.low_a, instrument.high_a])
        off = np.abs(current_a[:, None] - levels).min(axis=1)
        edges = int(np.count_nonzero(np.diff(current_a > levels.mean())))
        between = int(np.count_nonzero(off > instrument.step_a))
        return max(0, between - 2 * edges)
    # The first samples of a run are calibrations, so the first that is kept lies within the first 0.1 s.
    known = truth["current_a"]
    index = ticks - ticks[0]
    best = len(ticks)
    for offset in range(min(3000, len(known) - int(index[-1]))):
        best = min(best, int(np.count_nonzero(np.abs(known[index + offset] - current_a) > instrument.step_a)))
        if not best:
            break
    return best


def error_codes(recording: Recording) -> list[str]:
    return [each.code for each in recording.record.findings if each.severity.value == "error"]


def codes(done: Done) -> set[str]:
    return {finding["code"] for finding in done.json["findings"] if finding["severity"] == "error"}


def test_the_kernel_enumerates_the_instruments(bench: Bench, record_property: Note) -> None:
    assert bench.devices() == [
        ("04d8:fe23", ""),
        ("2341:0043", "5573932393735"),
        ("2ab9:0001", "11425"),
        ("2ab9:0001", "20123"),
    ]
    bound = bench.guest.run("sh", "-c", "basename -a $(readlink -f /sys/class/tty/ttyACM*/device/driver)")
    assert bound.out.split() == ["cdc_acm", "cdc_acm"]
    for name, value in bench.facts.items():
        record_property(name, value)


def test_scan_finds_them(bench: Bench) -> None:
    found = bench.guest.run("joulefleet", "meter", "scan", "--json").json
    assert found["notes"] == []
    seen = {(each["kind"], each["port"], each["serial"], each["problem"]) for each in found["instruments"]}
    assert {
        ("monsoon-hvpm", "", "20123", ""),
        ("monsoon-hvpm", "", "11425", ""),
        ("monsoon-lvpm", "/dev/ttyACM0", "", ""),
        ("ina219", "/dev/ttyACM1", "5573932393735", ""),
    } <= seen


@every_instrument
def test_info_says_which_one_and_that_it_is_emulated(bench: Bench, instrument: Instrument) -> None:
    info = bench.meter("info", instrument, "--json").json
    assert (info["kind"], info["serial"], info["emulated"]) == (instrument.kind, instrument.serial, True)


@every_instrument
def test_what_is_recorded_is_what_was_sent(
    bench: Bench, instrument: Instrument, tmp_path: Path, record_property: Note
) -> None:
    run = Run(bench, instrument, "record")
    done = bench.guest.run(*run.words, "--seconds", "8")
    assert codes(done) == set()
    recording, numbers = run.check(tmp_path)
    verified = bench.guest.run("joulefleet", "meter", "verify", run.path)
    assert verified.code == 0
    span_s = done.json["duration_s"]
    for name, value in {**numbers, "span_s": round(span_s, 2), "took_s": round(done.seconds, 1)}.items():
        record_property(name, value)
    assert recording.record.n_samples == numbers["samples"] == done.json["n_samples"] > 1000
    if instrument.kind == "monsoon-hvpm":
        deepest = bench.gadgets[instrument.bus_id].deepest
        record_property("transfers_queued", deepest)
        assert deepest >= 16


@every_instrument
def test_starting_and_stopping_again_and_again_mixes_no_runs(
    bench: Bench, instrument: Instrument, record_property: Note
) -> None:
    run = Run(bench, instrument, "again")
    named = (instrument.kind, instrument.serial, instrument.node)
    done = bench.guest.run(f"{SCRIPTS}/start_and_stop.py", *named, "8", "0.4", timeout_s=300)
    sent, at = run.sent, 0
    runs = [base64.b64decode(data) for data in done.json]
    assert len(runs) == 8
    for data in runs:
        begin = sent.find(data, at)
        assert begin >= 0, "bytes of a run are not what was sent, or not in order"
        at = begin + len(data)
        if instrument.kind == "monsoon-hvpm":  # from packet 0 on, whose first observation is invalid
            assert (data[2] & 0x0F, data[4 + 17] & 0x30) == (0, 0x20)
    record_property("bytes", [len(data) for data in runs])


def test_what_a_slow_guest_loses_is_counted_where_it_was_lost(
    bench: Bench, tmp_path: Path, record_property: Note
) -> None:
    bench.attach(SPARE)
    run = Run(bench, SPARE, "slow")
    done = bench.guest.run(*run.words, "--seconds", "5", check=False)
    recording, numbers = run.check(tmp_path, may_lose=True)  # samples lie where they were taken
    made = bench.emulators[SPARE.bus_id].statistics
    bench.unplug(SPARE)
    assert 0 < numbers["lost"] <= made["dropped"]
    assert numbers["samples"] + numbers["lost"] <= made["samples"]
    gap = next(each for each in recording.record.findings if each.code == "gap")
    assert gap.count == numbers["lost"]
    for name, value in {**numbers, "dropped_by_the_unit": made["dropped"], "code": done.code}.items():
        record_property(name, value)


@every_monsoon
def test_the_output_is_set_and_read_back_with_both_limits(bench: Bench, instrument: Instrument) -> None:
    limited = [word if word != "3" else "2.5" for word in instrument.words]
    before = bench.meter("info", instrument, "--json").json["facts"]
    set_to = bench.guest.run("joulefleet", "meter", "output", *limited, "--set", "4.1", "--yes")
    assert "4.1" in set_to.said
    facts = bench.meter("info", instrument, "--json").json["facts"]
    names = ("run_time_limit_a", "power_up_limit_a", "output_setting_v")
    if instrument.kind == "monsoon-hvpm":
        names = ("run_time_current_limit_a", "power_up_current_limit_a", "output_voltage_v")
    run_time_a, power_up_a, voltage_v = (facts[name] for name in names)
    assert 2.48 < run_time_a <= 2.5
    assert 2.48 < power_up_a <= 2.5
    assert voltage_v == pytest.approx(4.1, abs=0.006)
    refused = bench.meter("output", instrument, "--set", "4.3", "--yes", check=False)
    assert refused.code == 5
    assert "4.2" in refused.said
    assert bench.meter("info", instrument, "--json").json["facts"][names[2]] == voltage_v
    restored = bench.guest.run(*("joulefleet", "meter", "output", *instrument.words, "--set", "4.0", "--yes"))
    assert restored.code == 0
    after = bench.meter("info", instrument, "--json").json["facts"]
    assert after[names[2]] == pytest.approx(before[names[2]], abs=0.006)


def test_an_ina219_has_no_output(bench: Bench) -> None:
    refused = bench.meter("output", INA219, "--set", "4.1", "--yes", check=False)
    assert refused.code != 0
    assert "output" in refused.said


@every_instrument
def test_a_busy_instrument_is_named_and_its_recording_not_disturbed(
    bench: Bench, instrument: Instrument, tmp_path: Path
) -> None:
    run = Run(bench, instrument, "busy")
    recording = bench.guest.begin(*run.words)
    run.wait_until_streaming(4000)
    second = bench.meter("info", instrument, check=False)
    assert second.code == 5
    assert "in use by another process" in second.said
    recording.interrupt()
    recording.wait()
    kept, _ = run.check(tmp_path)
    assert error_codes(kept) == []


@every_instrument
def test_a_wrong_serial_number_is_refused(bench: Bench, instrument: Instrument) -> None:
    words = [word for word in instrument.words if word not in ("--serial", instrument.serial)]
    done = bench.guest.run("joulefleet", "meter", "info", *words, "--serial", "4711", check=False)
    assert done.code == 5
    assert "4711" in done.said
    assert instrument.serial in done.said


def test_of_two_instruments_one_must_be_named(bench: Bench) -> None:
    words = [word for word in HVPM.words if word not in ("--serial", HVPM.serial)]
    done = bench.guest.run("joulefleet", "meter", "info", *words, check=False)
    assert done.code == 5
    assert {"several", "20123", "11425"} <= set(re.findall(r"\w+", done.said))


def test_the_udev_rule_in_the_hint_gives_permission(bench: Bench) -> None:
    refused = bench.meter("info", HVPM, uid=NOBODY, check=False)
    assert refused.code == 5
    assert "no permission" in refused.said
    text = refused.said
    (rule,) = re.findall(r'`(SUBSYSTEM=="usb".*?)`', text)
    (file,) = re.findall(r"/etc/udev/rules\.d/\S+\.rules", text)
    scanned = bench.guest.run("joulefleet", "meter", "scan", "--json", uid=NOBODY).json
    assert sum("no permission" in each["problem"] for each in scanned["instruments"]) == 2
    bench.guest.run("sh", "-c", 'printf "%s\\n" "$0" > "$1"; udevadm control --reload', rule, file)
    bench.unplug(HVPM)  # "and plug it in again"
    bench.attach(HVPM)
    assert bench.meter("info", HVPM, "--json", uid=NOBODY).json["serial"] == HVPM.serial
    bench.guest.run("rm", file)


@pytest.mark.parametrize("instrument", [LVPM, INA219], ids=lambda each: each.kind)
def test_the_group_in_the_hint_gives_permission(bench: Bench, instrument: Instrument) -> None:
    refused = bench.meter("info", instrument, uid=NOBODY, check=False)
    assert refused.code == 5
    assert "no permission" in refused.said
    (group,) = re.findall(r"usermod -aG (\w+)", refused.said)
    owner = bench.guest.run("stat", "-c", "%G %a", instrument.node).out.split()
    assert owner == [group, "660"]
    number = int(bench.guest.run("sh", "-c", f"getent group {group} | cut -d: -f3").out)
    done = bench.guest.run(
        "joulefleet", "meter", "info", *instrument.words, "--json", uid=NOBODY, groups=(number,)
    )
    assert done.json["serial"] == instrument.serial


@every_instrument
def test_a_pulled_cable_leaves_what_came_before(
    bench: Bench, instrument: Instrument, tmp_path: Path, record_property: Note
) -> None:
    run = Run(bench, instrument, "pull")
    recording = bench.guest.begin(*run.words, "--seconds", "100")
    run.wait_until_streaming(instrument.pull_after_bytes)
    bench.server.unplug(instrument.bus_id)
    pulled = time.monotonic()
    done = recording.wait()
    noticed_s = time.monotonic() - pulled
    assert done.code == 5
    assert "went away" in done.said
    assert run.path in done.said
    kept, numbers = run.check(tmp_path)
    (finding,) = [each for each in kept.record.findings if each.severity.value == "error"]
    *_, last = kept.blocks()
    assert finding.code == "disconnected"
    assert finding.last_index == last.first_index + len(last) - 1
    for name, value in {**numbers, "noticed_s": round(noticed_s, 1)}.items():
        record_property(name, value)
    bench.unplug(instrument)
    bench.attach(instrument)
    assert bench.meter("info", instrument, "--json").json["serial"] == instrument.serial


@every_instrument
def test_ctrl_c_keeps_the_recording_and_frees_the_instrument(
    bench: Bench, instrument: Instrument, tmp_path: Path
) -> None:
    run = Run(bench, instrument, "ctrl-c")
    recording = bench.guest.begin(*run.words)
    run.wait_until_streaming(20_000)
    recording.interrupt()
    done = recording.wait()
    assert done.code == 0, done.said
    kept, _ = run.check(tmp_path)
    assert error_codes(kept) == []
    assert bench.meter("info", instrument, "--json").json["serial"] == instrument.serial
