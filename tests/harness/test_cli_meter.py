"""The real command line against emulated instruments, which are processes of their own."""

import contextlib
import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.cli import run
from joulefleet.errors import (
    EXIT_CONFIG,
    EXIT_DATA_QUALITY,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_METER,
    EXIT_USAGE,
)
from power.emulated.options import EmulatorOptions
from power.emulated.service import EmulatorProcess
from power.recording import open_recording

JOULEFLEET = [sys.executable, "-m", "harness", "meter"]
LIMITS = ["--voltage", "4", "--voltage-max", "4.2", "--current-limit", "3"]

Answer = Callable[..., Any]


@pytest.fixture
def answer(capfd: pytest.CaptureFixture[str]) -> Answer:
    """Run the command line in this process, which saves its start, and give what ``--json`` says."""

    def ask(*arguments: str, code: int = 0) -> Any:
        capfd.readouterr()
        returned = run(["meter", *arguments, "--json"])
        out, err = capfd.readouterr()
        assert returned == code, out + err
        return json.loads(out)

    return ask


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a process, which does not outlive the test."""
    process = subprocess.Popen(
        [*JOULEFLEET, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def lvpm() -> Iterator[list[str]]:
    """The options of an emulated LVPM with 0.4 A at 4 V."""
    options = EmulatorOptions(signal="constant:current=0.4,voltage=4.0", noise_a=0.001, serial="321")
    with EmulatorProcess("monsoon-lvpm", options) as instrument:
        yield ["--kind", "monsoon-lvpm", "--port", instrument.address, *LIMITS]


def test_list_shows_the_kinds(answer: Answer) -> None:
    kinds = {row["kind"]: row for row in answer("list")}
    assert {"monsoon-lvpm", "monsoon-hvpm", "ina219", "ina219-csv", "replay"} <= set(kinds)
    assert kinds["monsoon-lvpm"]["emulator"]
    assert not kinds["replay"]["emulator"]


def test_scan_looks_without_failing(answer: Answer) -> None:
    assert set(answer("scan")) == {"instruments", "notes"}


def test_info_shows_what_the_instrument_says(answer: Answer, lvpm: list[str]) -> None:
    facts = answer("info", *lvpm)
    assert (facts["serial"], facts["emulated"], facts["rate_hz"]) == ("321", True, 5000.0)


def test_what_people_see(lvpm: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["meter", "list"]) == run(["meter", "scan"]) == run(["meter", "info", *lvpm]) == 0
    shown = capfd.readouterr().out
    for text in ("monsoon-hvpm", "321", "nothing measured with it may be called measured", "range fine"):
        assert text in shown
    out = str(tmp_path / "r")
    assert run(["meter", "record", *lvpm, "--seconds", "1", "--out", out]) == 0
    shown = capfd.readouterr()
    assert "recording: 100% 1.6" in shown.err
    assert "W on average" in shown.out
    assert f"emulated recording in {out}" in shown.out
    assert run(["meter", "verify", out]) == 0
    assert "are what the instrument's bytes say" in capfd.readouterr().out


def test_record_verify_and_replay(answer: Answer, tmp_path: Path, lvpm: list[str]) -> None:
    out = tmp_path / "recording"
    command = [*JOULEFLEET, "record", *lvpm, "--seconds", "1.5", "--out", str(out), "--json"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    record = open_recording(out).record
    assert said["sha256"] == record.sha256()
    assert said["n_samples"] == record.n_samples > 5000
    assert said["mean_power_w"] == pytest.approx(1.6, rel=0.01)
    assert said["origin"] == "emulated"

    verified = answer("verify", str(out))
    assert verified["changed_files"] == []
    assert verified["first_difference"] is None
    assert verified["n_decoded_again"] == record.n_samples

    replay = ["--kind", "replay", "--port", str(out), *LIMITS, "--option", "speed=0"]
    again = answer("record", *replay, "--out", str(tmp_path / "again"))
    assert (again["kind"], again["origin"]) == ("replay:monsoon-lvpm", "emulated")
    assert again["n_samples"] == record.n_samples

    raw = bytearray((out / "raw.bin").read_bytes())
    raw[len(raw) // 2] ^= 0x10
    (out / "raw.bin").write_bytes(raw)
    broken = answer("verify", str(out), code=EXIT_DATA_QUALITY)
    assert broken["changed_files"] == ["raw.bin"]
    assert broken["first_difference"] is not None


def test_what_a_recording_holds(answer: Answer, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Two seconds at 0.5 A, then one at 0.1 A with 20 samples missing before it; 4 V."""
    from tests.power.synthetic import block, write_recording

    out, csv = tmp_path / "r", tmp_path / "samples.csv"
    parts = [block([0.5] * 2000), block([0.1] * 1000, first_index=2020, dropped_before=20)]
    write_recording(out, parts)
    said = answer("show", str(out), "--csv", str(csv), "--to", "1.5")
    assert (said["origin"], said["problems"]) == ("emulated", [])
    assert said["energy_j"] == pytest.approx(0.5 * 4 * 1.5, rel=1e-6)
    assert said["mean_power_w"] == pytest.approx(2.0, rel=1e-6)
    # Gains of 1 % each, 1 mA of 500 and 10 mV of 4 V, in squares.
    assert said["energy_half_width_95_j"] / said["energy_j"] == pytest.approx(0.0145, rel=0.02)
    assert said["csv_rows"] == 1501
    again = answer("show", str(out), "--csv", str(csv), code=EXIT_FAILED)
    assert "samples.csv" in again["error"]["message"]
    csv.unlink()
    whole = answer("show", str(out), "--csv", str(csv), code=EXIT_DATA_QUALITY)
    assert "lost" in whole["problems"][0]
    head, rows = csv.read_text().splitlines()[:5], pd.read_csv(csv, comment="#")
    assert "origin: emulated" in head[1]
    assert list(rows.columns) == ["time_s", "current_a", "voltage_v", "power_w", "lost_before"]
    assert len(rows) == 3000
    assert rows["lost_before"].sum() == rows["lost_before"][2000] == 20
    assert rows["time_s"].tolist()[1999:2001] == [1.999, 2.02]
    assert rows["power_w"].mean() == pytest.approx((2.0 * 2 + 0.4) / 3, rel=1e-6)
    late = answer("show", str(out), "--from", "9", code=EXIT_CONFIG)
    assert "it lasts 3.019 s" in late["error"]["hint"]
    assert run(["meter", "show", str(out), "--from", "0.5", "--to", "1"]) == 0
    assert "1 J ± 0.015 J (95 %), 2 W on average" in capfd.readouterr().out


def test_a_recording_without_samples_holds_nothing(answer: Answer, tmp_path: Path) -> None:
    from tests.power.synthetic import write_recording

    write_recording(tmp_path / "r", [])
    said = answer("show", str(tmp_path / "r"), code=EXIT_DATA_QUALITY)
    assert "holds no samples" in said["error"]["message"]


def test_ctrl_c_keeps_the_recording(tmp_path: Path, lvpm: list[str]) -> None:
    out = tmp_path / "recording"
    with started("record", *lvpm, "--seconds", "600", "--out", str(out), "--json") as process:
        _wait_for_bytes(out, 20_000)
        process.send_signal(signal.SIGINT)
        text, errors = process.communicate(timeout=30)
    assert process.returncode == EXIT_INTERRUPTED, errors
    assert json.loads(text)["n_samples"] == open_recording(out).record.n_samples > 1000


def test_unplugged_in_the_middle_keeps_every_sample(answer: Answer, tmp_path: Path) -> None:
    out = tmp_path / "recording"
    options = EmulatorOptions(signal="constant:current=0.4,voltage=4.0", faults=("disconnect@1.0",))
    with EmulatorProcess("monsoon-lvpm", options) as instrument:
        port = ["--kind", "monsoon-lvpm", "--port", instrument.address, *LIMITS]
        said = answer("record", *port, "--seconds", "30", "--out", str(out), code=EXIT_METER)
    assert said["error"]["type"] == "MeterDisconnected"
    assert str(out) in said["error"]["message"]
    record = open_recording(out).record
    assert 4000 < record.n_samples < 5020  # whole packets
    assert "disconnected" in {finding.code for finding in record.findings}


def test_killed_and_salvaged(answer: Answer, tmp_path: Path, lvpm: list[str]) -> None:
    out = tmp_path / "recording"
    with started("record", *lvpm, "--out", str(out)) as process:
        _wait_for_bytes(out, 90_000)
        running = answer("salvage", str(out), code=1)
        assert "another process is writing" in running["error"]["message"]
        process.kill()
    size = (out / "raw.bin").stat().st_size
    said = answer("salvage", str(out))
    # A packet of 64 bytes holds 7 samples. A second may be lost, and a block that was being decoded.
    assert said["n_samples"] > size / 64 * 7 - 5000 - 1500
    assert "nothing to salvage" in answer("salvage", str(out), code=1)["error"]["message"]
    assert answer("verify", str(out))["first_difference"] is None
    after = answer("record", *lvpm, "--seconds", "0.5", "--out", str(tmp_path / "after"))
    assert after["mean_power_w"] == pytest.approx(1.6, rel=0.01)  # the kill has left the output on


def test_output_is_changed_only_on_request_and_within_limits(answer: Answer, lvpm: list[str]) -> None:
    above = answer("output", *lvpm, "--set", "4.3", "--yes", code=EXIT_METER)
    assert above["error"]["type"] == "UnsafeOutput"
    unconfirmed = answer("output", *lvpm, "--set", "4.1", code=EXIT_USAGE)
    assert "--yes" in unconfirmed["error"]["message"]
    assert answer("info", *lvpm)["facts"]["output_setting_v"] == 4.0
    careful = [*lvpm[:-1], "1.5"]
    said = answer("output", *careful, "--set", "4.1", "--yes")
    assert (said["output_on"], said["voltage_v"]) == (True, 4.1)
    facts = answer("info", *lvpm)["facts"]
    assert facts["output_setting_v"] == 4.1
    assert facts["run_time_limit_a"] == said["run_time_limit_a"] == pytest.approx(1.5, abs=0.008)
    assert facts["power_up_limit_a"] == said["power_up_limit_a"] <= 1.5
    assert answer("output", *lvpm, "--set", "4.0", "--yes")["voltage_v"] == 4.0
    both = answer("output", *lvpm, "--set", "4.0", "--off", code=EXIT_USAGE)
    assert "either" in both["error"]["message"]


def test_a_meter_without_an_output(answer: Answer, tmp_path: Path) -> None:
    from tests.power.synthetic import block, write_recording

    write_recording(tmp_path, [block([0.5] * 10)])
    replay = ["--kind", "replay", "--port", str(tmp_path), *LIMITS]
    said = answer("output", *replay, "--off", "--yes", code=EXIT_METER)
    assert "has no output" in said["error"]["message"]


def test_selftest(answer: Answer, tmp_path: Path, lvpm: list[str]) -> None:
    arguments = ("selftest", *lvpm, "--tolerance", "1", "--seconds", "1")
    good = answer(*arguments, "--load-ohms", "10", "--out", str(tmp_path / "good"))
    assert good["passed"]
    assert json.loads((tmp_path / "good" / "selftest.json").read_text())["load"] == good["load"]
    bad = answer(*arguments, "--load-ohms", "10.5", "--out", str(tmp_path / "bad"), code=EXIT_METER)
    assert not bad["passed"]
    assert "off" in bad["load"]["problems"][0]


def test_selftest_does_not_switch_a_dead_output_on(answer: Answer, tmp_path: Path) -> None:
    with EmulatorProcess("monsoon-lvpm", EmulatorOptions()) as instrument:
        port = ["--kind", "monsoon-lvpm", "--port", instrument.address, *LIMITS]
        assert answer("output", *port, "--off", "--yes")["output_on"] is False
        for attempt in ("1", "2"):  # the first one has left it off
            test = ["--load-ohms", "10", "--tolerance", "1", "--seconds", "1"]
            said = answer("selftest", *port, *test, "--out", str(tmp_path / attempt), code=EXIT_METER)
            assert "output is off" in said["error"]["message"]
            assert "meter output" in said["error"]["hint"]


def test_emulate_prints_an_address_that_works(answer: Answer, tmp_path: Path) -> None:
    options = ["--signal", "square:low=0.1,high=0.5,period=1", "--fault", "lost_packets@0.5:2"]
    options += ["--noise", "0.001", "--serial", "77"]
    with started("emulate", "monsoon-lvpm", *options, "--json") as process:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        port = ["--kind", "monsoon-lvpm", "--port", address, *LIMITS]
        assert answer("info", *port)["serial"] == "77"
        said = answer("record", *port, "--seconds", "1", "--out", str(tmp_path / "r"))
        process.send_signal(signal.SIGINT)
        counters = json.loads(process.stdout.read())["statistics"]
    assert process.returncode == 0
    assert counters["lost_packets"] == 2
    assert said["dropped"] >= 14


def test_emulate_refuses_what_it_does_not_know(answer: Answer) -> None:
    assert "no emulator" in answer("emulate", "voltmeter", code=EXIT_CONFIG)["error"]["message"]
    fault = answer("emulate", "monsoon-lvpm", "--fault", "smoke@1", code=EXIT_CONFIG)
    assert "lost_packets" in fault["error"]["hint"]
    wave = answer("emulate", "monsoon-lvpm", "--signal", "triangle", code=EXIT_CONFIG)
    assert "square" in wave["error"]["hint"]


CSV = "Time (s),Main Avg Current (mA),Main Avg Voltage (V)\n" + "".join(
    f"{i / 100:.2f},{400 + i % 3}.0,4.0\n" for i in range(200)
)


def test_import_of_a_powertool_file(answer: Answer, tmp_path: Path) -> None:
    file, out = tmp_path / "phone.csv", str(tmp_path / "r")
    file.write_text(CSV)
    said = answer("import", "powertool-csv", str(file), "--out", out)
    assert (said["n_samples"], said["origin"]) == (200, "imported")
    again = answer("import", "powertool-csv", str(file), "--out", out, code=1)
    assert "not overwritten" in again["error"]["message"]


def test_import_finds_the_format_by_what_the_file_holds(answer: Answer, tmp_path: Path) -> None:
    file = tmp_path / "phone.pt4"
    file.write_text(CSV)
    said = answer("import", "auto", str(file), "--out", str(tmp_path / "r"))
    assert said["kind"] == "import:powertool-csv"
    assert said["duration_s"] == pytest.approx(2.0)  # 200 averages of 10 ms
    file.write_text("a,b\n1,2\n")
    refused = answer("import", "auto", str(file), "--out", str(tmp_path / "s"), code=6)
    assert "none of the formats" in refused["error"]["message"]


def test_a_row_that_looks_like_markup_is_shown_as_it_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "phone.csv"
    file.write_text(CSV + "[/],1,2,3\n")
    assert run(["meter", "import", "powertool-csv", str(file), "--out", str(tmp_path / "r")]) == 0
    assert "[/],1,2,3" in capfd.readouterr().out


def test_a_meter_by_its_device(
    answer: Answer, tmp_path: Path, lvpm: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "devices.toml").write_text(
        '[devices.phone]\nhost = "phone"\n\n[devices.phone.meter]\nkind = "monsoon-lvpm"\n'
        f'port = "{lvpm[3]}"\nvoltage_v = 4.0\nvoltage_max_v = 4.2\ncurrent_limit_a = 3.0\n\n'
        '[devices.board]\nhost = "board"\n'
    )
    monkeypatch.chdir(tmp_path)
    assert answer("info", "--device", "phone")["serial"] == "321"
    assert "no meter" in answer("info", "--device", "board", code=EXIT_CONFIG)["error"]["message"]
    assert "board, phone" in answer("info", "--device", "fone", code=EXIT_CONFIG)["error"]["hint"]
    mixed = answer("info", "--device", "phone", "--kind", "ina219", code=EXIT_USAGE)
    assert "inventory" in mixed["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], EXIT_USAGE, "which meter?"),
        (["--kind", "monsoon-lvpm"], EXIT_USAGE, "--voltage, --voltage-max, --current-limit: mandatory"),
        (["--kind", "monsun", *LIMITS], EXIT_CONFIG, "no power meter called 'monsun'"),
        (["--kind", "monsoon-lvpm", "--port", "/dev/pts/no", *LIMITS], EXIT_METER, "no such port"),
        (["--kind", "ina219", *LIMITS[:3], "3", *LIMITS[4:]], EXIT_CONFIG, "above voltage_max_v"),
        (["--kind", "ina219", *LIMITS, "--option", "baud"], EXIT_USAGE, "not KEY=VALUE"),
    ],
)
def test_bad_options(answer: Answer, arguments: list[str], code: int, message: str) -> None:
    assert message in answer("info", *arguments, code=code)["error"]["message"]


def test_a_recording_is_not_overwritten(answer: Answer, tmp_path: Path, lvpm: list[str]) -> None:
    arguments = ("record", *lvpm, "--seconds", "0.3", "--out", str(tmp_path / "r"))
    answer(*arguments)
    before = open_recording(tmp_path / "r").record
    assert "already" in answer(*arguments, code=1)["error"]["message"]
    assert open_recording(tmp_path / "r").record == before


def _wait_for_bytes(folder: Path, size: int, limit_s: float = 60.0) -> None:
    """Until a recording in another process has so many raw bytes."""
    raw = folder / "raw.bin"
    deadline = time.monotonic() + limit_s
    while not raw.exists() or raw.stat().st_size < size:
        assert time.monotonic() < deadline, "nothing is recorded"
        time.sleep(0.05)


CALIBRATION = """
[devices.phone.meter.calibration]
k = 2
date = 2026-10-01
certificate = "C-17"
[devices.phone.meter.calibration.current.all]
gain = 1.02
gain_uncertainty = 0.002
offset_a = 0.001
offset_uncertainty_a = 0.0001
[devices.phone.meter.calibration.voltage]
gain = 0.99
gain_uncertainty = 0.001
"""


def test_a_calibration_is_applied_shown_and_kept(answer: Answer, tmp_path: Path) -> None:
    from tests.power.synthetic import block, write_recording

    write_recording(tmp_path / "r", [block([0.5] * 10_001)])
    file = tmp_path / "c.toml"
    file.write_text(CALIBRATION)
    plain = answer("show", str(tmp_path / "r"))
    assert plain["calibration"] is None
    corrected_w = (1.02 * 0.5 + 0.001) * 0.99 * 4.0
    shown = answer("show", str(tmp_path / "r"), "--calibration", str(file))
    assert shown["mean_power_w"] == pytest.approx(corrected_w, rel=1e-6)
    assert shown["calibration"]["certificate"] == "C-17"
    assert shown["energy_half_width_95_j"] < plain["energy_half_width_95_j"] / 2
    parts = shown["parts_half_width_95_j"]
    assert math.hypot(*parts.values()) == pytest.approx(shown["energy_half_width_95_j"])
    replay = ["--kind", "replay", "--port", str(tmp_path / "r"), *LIMITS, "--option", "speed=0"]
    said = answer("record", *replay, "--calibration", str(file), "--out", str(tmp_path / "again"))
    assert said["mean_power_w"] == pytest.approx(corrected_w, rel=1e-6)
    assert said["calibration_sha256"] == shown["calibration"]["sha256"]
    again = answer("show", str(tmp_path / "again"))
    for key in ("energy_j", "energy_half_width_95_j", "calibration"):
        assert again[key] == pytest.approx(shown[key]) if key != "calibration" else again[key] == shown[key]
    verified = answer("verify", str(tmp_path / "again"))
    assert verified["calibration_sha256"] == said["calibration_sha256"]
    assert verified["changed_files"] == []


def test_a_bad_calibration_file_loses_nothing(answer: Answer, tmp_path: Path) -> None:
    from tests.power.synthetic import block, write_recording

    write_recording(tmp_path / "r", [block([0.5] * 1001)])
    file = tmp_path / "c.toml"
    file.write_text(CALIBRATION.replace("gain = 1.02", "gain = 0"))
    said = answer("show", str(tmp_path / "r"), "--calibration", str(file), code=EXIT_CONFIG)
    assert "calibration.current.all.gain" in said["error"]["message"]
    file.write_text(CALIBRATION.replace("current.all", "current.fine"))
    replay = ["--kind", "replay", "--port", str(tmp_path / "r"), *LIMITS, "--option", "speed=0"]
    out = ["--calibration", str(file), "--out", str(tmp_path / "again")]
    said = answer("record", *replay, *out, code=EXIT_CONFIG)
    assert "range 'fine', which it has not" in said["error"]["message"]
    assert not (tmp_path / "again").exists()


def test_calibrate_writes_what_show_reads(answer: Answer, tmp_path: Path) -> None:
    from tests.power.synthetic import block, write_recording

    for name, load_a in (("low", 0.1), ("high", 0.8)):  # a meter that reads 3 % and 2 mA too much
        write_recording(tmp_path / name, [block([1.03 * load_a + 0.002] * 2001)])
    points = []
    for name, ohms in (("low", 40), ("high", 5)):
        points += ["--point", f"ohms={ohms},tolerance=0.1%,recording={tmp_path / name}"]
    made = answer("calibrate", *points, "--by", "Ann", "--out", str(tmp_path / "c"))
    current = made["calibration"]["current"]["all"]
    assert current["gain"] == pytest.approx(1 / 1.03, rel=2e-3)
    assert current["offset_a"] == pytest.approx(-0.002 / 1.03, rel=0.1)
    assert made["calibration"]["readings"] == 2
    assert (tmp_path / "c" / "calibration.toml").read_text() == made["toml"]
    assert "[calibration.current.all]" in made["toml"].splitlines()
    assert "[calibration.current.all]" in made["toml"].splitlines()
    shown = answer("show", str(tmp_path / "high"), "--calibration", made["file"])
    assert shown["mean_power_w"] == pytest.approx(0.8 * 4.0, rel=2e-3)
    assert shown["calibration"]["by"] == "Ann"
    again = answer("calibrate", *points, "--out", str(tmp_path / "c"), code=EXIT_FAILED)
    assert "exists already" in again["error"]["message"]


def test_a_refused_calibration_keeps_its_recording_and_is_in_nobodys_way(
    answer: Answer, tmp_path: Path
) -> None:
    """Somebody types 40 for 4 ohms; the next try, or one with the recording that is there, is not refused."""
    from tests.power.synthetic import block, write_recording

    write_recording(tmp_path / "meter", [block([1.0] * 2001)])
    replay = ["--kind", "replay", "--port", str(tmp_path / "meter"), *LIMITS, "--option", "speed=0"]
    out = tmp_path / "c"
    for attempt in range(2):
        wrong = ("--point", "ohms=40,tolerance=0.1%", "--out", str(out))
        said = answer("calibrate", *replay, "--seconds", "1", *wrong, code=EXIT_METER)
        assert "0.1 A should flow" in said["error"]["message"]
        assert f"recording={out / 'point1'}" in said["error"]["hint"]
        assert len(list(out.rglob("recording.json"))) == attempt + 1, "what was recorded is evidence"
    mended = f"ohms=4,tolerance=0.1%,recording={out / 'point1'}"
    assert answer("calibrate", "--point", mended, "--out", str(out))["calibration"]["readings"] == 1
    again = answer(
        "calibrate", *replay, "--point", "ohms=4,tolerance=1%", "--out", str(out), code=EXIT_FAILED
    )
    assert "calibration.toml: exists already" in again["error"]["message"]
    assert len(list(out.rglob("recording.json"))) == 2, "nothing was recorded for nothing"


def test_a_selftest_without_a_load_is_in_nobodys_way(answer: Answer, tmp_path: Path) -> None:
    from tests.power.synthetic import block, write_recording

    write_recording(tmp_path / "loose", [block([0.001] * 2001)])
    write_recording(tmp_path / "tight", [block([0.4] * 2001)])
    test = ["selftest", *LIMITS, "--option", "speed=0", "--load-ohms", "10", "--tolerance", "1"]
    test += ["--seconds", "1", "--kind", "replay", "--out", str(tmp_path / "out"), "--port"]
    assert "no load" in answer(*test, str(tmp_path / "loose"), code=EXIT_METER)["error"]["message"]
    assert answer(*test, str(tmp_path / "tight"))["passed"]
    assert (tmp_path / "out" / "failed" / "load-attempt1" / "recording.json").exists()
    again = answer(*test, str(tmp_path / "tight"), code=EXIT_FAILED)
    assert "holds a self-test already" in again["error"]["message"]


def test_calibrate_refuses_what_it_cannot_do(answer: Answer, tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "c")]
    two = ["--point", "ohms=10,tolerance=1%", "--point", "ohms=40,tolerance=1%"]
    for arguments, says, code in (
        (["--point", "ohms=10,tolerance=1%"], "which meter", EXIT_USAGE),
        (["--kind", "replay", "--port", "x", *LIMITS, *two], "nobody is at the terminal", EXIT_USAGE),
        (["--point", "ohms"], "not KEY=VALUE", EXIT_USAGE),
        (["--point", "ohms=10,tolerance=1%,ohms=11"], "there twice", EXIT_USAGE),
        (["--point", "ohms=ten,tolerance=1%"], "--point ohms=ten", EXIT_CONFIG),
        (["--point", "ohm=10,tolerance=1%"], "unknown key", EXIT_CONFIG),
    ):
        said = answer("calibrate", *arguments, *out, code=code)
        assert says in said["error"]["message"], says
        assert not (tmp_path / "c").exists()
