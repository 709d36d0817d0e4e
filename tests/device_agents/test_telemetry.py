"""Telemetry from trees of real files, and from this machine's kernel."""

import os
import time
from pathlib import Path

import pytest

from device_agents.payload.link.streams import Sender
from device_agents.payload.recording.journal import JobJournal
from device_agents.payload.recording.telemetry import Summary, TelemetryRecorder
from device_agents.payload.recording.telemetry_sources import discover
from device_agents.protocol import SourceLost, Sources
from device_agents.protocol import Telemetry as TelemetryRecord
from tests.device_agents.agents import session_on, softmax
from tests.device_agents.fake_sysfs import CPU, NET_DEV, STAT, phone, raspberry_pi, tree


def sample(root: Path) -> dict[str, list[float | None]]:
    sources, _ = discover(root)
    values: dict[str, list[float | None]] = {}
    for source in sources:
        values.update(source.sample())
    return values


def test_a_raspberry_pi(tmp_path: Path) -> None:
    root = raspberry_pi(tmp_path)
    sources, missing = discover(root)
    columns = {name: parts for source in sources for name, parts in source.columns.items()}
    assert columns["cpu_freq_hz"] == ["cpu0", "cpu1", "cpu10"]
    assert columns["temperature_c"] == ["cpu-thermal"]
    assert columns["cpu_cooling_state"] == ["cpufreq-cpu0"]  # a running fan is no throttled core
    assert columns["received_bytes"] == ["wlan0"]
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    assert sample(root) == {
        "cpu_freq_hz": [1.5e9, 6e8, 7e8],
        "cpu_busy_s": [100 * tick_s, 100 * tick_s],
        "cpu_idle_s": [400 * tick_s, 400 * tick_s],
        "load_1min": [0.52],
        "temperature_c": [61.832],
        "cpu_cooling_state": [0],
        "throttle_flags": [0x50000],
        "memory_available_bytes": [2_000_000 * 1024],
        "received_bytes": [5000],
        "sent_bytes": [7000],
    }
    assert set(missing) == {"throttle count", "battery level", "battery temperature"}
    assert set(missing.values()) == {"not on this device"}


def test_a_phone_that_hides_most_of_it(tmp_path: Path) -> None:
    root = phone(tmp_path)
    _, missing = discover(root)
    assert missing["cpu time"] == missing["load"] == missing["network"] == "Is a directory"
    assert {"cpu cooling", "throttle flags", "throttle count"} <= set(missing)
    assert sample(root) == {
        "cpu_freq_hz": [1.8048e9],
        "temperature_c": [40.0, 52.5, None],
        "memory_available_bytes": [2_000_000 * 1024],
        "battery_level": [0.83],
        "battery_temperature_c": [31.4],
    }


def test_a_device_that_shows_nothing_at_all(tmp_path: Path) -> None:
    sources, missing = discover(tmp_path)
    assert sources == []
    assert len(missing) == 11


def test_this_machine() -> None:
    values = sample(Path("/"))
    assert values["memory_available_bytes"][0] > 0
    assert len(values["cpu_busy_s"]) == os.cpu_count()


@pytest.mark.parametrize(
    "content", ["", "cpu", "cpu0 1 2", "\0" * 100, "MemAvailable: x kB", "lo: 1 2 3", "eth0: 1"]
)
def test_files_with_nonsense_in_them_do_no_harm(tmp_path: Path, content: str) -> None:
    names = [
        "proc/stat",
        "proc/loadavg",
        "proc/meminfo",
        "proc/net/dev",
        f"{CPU}/cpu0/cpufreq/scaling_cur_freq",
    ]
    tree(tmp_path, dict.fromkeys(names, content))
    for values in sample(tmp_path).values():
        assert values.count(None) == len(values)


def test_a_core_that_goes_offline_is_none_not_another_core(tmp_path: Path) -> None:
    root = raspberry_pi(tmp_path)
    (source,) = [s for s in discover(root)[0] if "cpu_busy_s" in s.columns]
    (root / "proc/stat").write_text("\n".join(line for line in STAT.split("\n") if "cpu0" not in line))
    assert source.sample()["cpu_busy_s"][0] is None
    assert source.sample()["cpu_busy_s"][1] is not None


def test_a_job_journals_sources_once_and_samples_at_its_rate(tmp_path: Path) -> None:
    root = raspberry_pi(tmp_path / "root")
    with session_on(tmp_path / "state", "--root", str(root)) as session:
        result = session.run_round(softmax(samples=100_000, epochs=4, telemetry_hz=5))
        record = session.collect(result.job_id)
    (sources,) = record.telemetry_of(Sources)
    assert sources.missing["battery level"] == "not on this device"
    samples = record.telemetry_of(TelemetryRecord)
    assert samples
    for one in samples:
        assert {name: len(values) for name, values in one.values.items()} == {
            name: len(parts) for name, parts in sources.columns.items()
        }
    times = [one.t_dev_ns for one in samples]
    assert times == sorted(times)
    assert record.begin is not None
    assert record.begin.clock.monotonic_ns <= times[0]


def test_the_probe_is_reported_with_a_summary(tmp_path: Path) -> None:
    root = phone(tmp_path / "root")
    with session_on(tmp_path / "state", "--root", str(root)) as session:
        # Long enough for a sample at 5 Hz on any machine.
        result = session.run_round(softmax(samples=400_000, epochs=1, telemetry_hz=5))
    assert result.probe is not None
    assert result.probe.telemetry["samples"] >= 1
    assert result.probe.telemetry["temperature_c"] == 52.5
    assert result.probe.telemetry["cpu_freq_hz"] == 1.8048e9
    assert result.probe.telemetry["battery_level"] == 0.83
    assert "cpu_load" not in result.probe.telemetry  # what is not known is not said


def test_a_source_that_stops_answering_is_reported_once(tmp_path: Path) -> None:
    root = raspberry_pi(tmp_path / "root")
    journal = JobJournal(tmp_path / "telemetry.jsonl")
    read_end, write_end = os.pipe()
    telemetry = TelemetryRecorder(root, 5.0, journal, Sender(write_end))
    (root / "proc/loadavg").write_text("")
    for _ in range(3):
        telemetry.turn()
    lines = (tmp_path / "telemetry.jsonl").read_text().splitlines()
    lost = [SourceLost.model_validate_json(line) for line in lines if "source_lost" in line]
    assert [record.column for record in lost] == ["load_1min"]
    telemetry.stop()
    journal.close()
    os.close(read_end)
    os.close(write_end)


def test_a_summary_of_load_and_throttling() -> None:
    summary = Summary()
    summary.add({"cpu_busy_s": [10.0, 20.0], "cpu_idle_s": [100.0, 100.0], "throttle_flags": [0x50000]})
    assert summary.result()["throttled"] is False  # it was, before: the high bits are history
    summary.add({"cpu_busy_s": [13.0, 21.0], "cpu_idle_s": [101.0, 103.0], "throttle_flags": [0x50004]})
    assert summary.result() == {"samples": 2, "cpu_load": 0.5, "throttled": True}
    counted = Summary()
    counted.add({"throttle_count": [5, 5]})
    counted.add({"throttle_count": [5, 6]})
    assert counted.result() == {"samples": 2, "throttled": True}
    cooled = Summary()
    cooled.add({"cpu_cooling_state": [-1, 2]})
    assert cooled.result()["throttled"] is True
    assert Summary().result() == {"samples": 0}


def test_counters_follow_the_kernel(tmp_path: Path) -> None:
    root = raspberry_pi(tmp_path)
    sources, _ = discover(root)
    (network,) = [s for s in sources if "sent_bytes" in s.columns]
    (root / "proc/net/dev").write_text(NET_DEV.replace("5000", "6000"))
    assert network.sample() == {"received_bytes": [6000], "sent_bytes": [7000]}
    (root / "proc/net/dev").write_text(NET_DEV.replace("wlan0", "eth0"))
    assert network.sample() == {"received_bytes": [None], "sent_bytes": [None]}


def test_the_schedule_does_not_drift_and_counts_what_it_misses() -> None:
    from device_agents.payload.recording.periodic import Periodic

    turns: list[float] = []

    class SlowOnce(Periodic):
        def turn(self) -> None:
            turns.append(time.monotonic())
            if len(turns) == 2:
                time.sleep(0.25)

    thread = SlowOnce("test", 0.1)
    thread.start()
    time.sleep(0.85)
    thread.stop()
    assert thread.missed >= 2
    assert thread.failure is None
    # Every turn is on the grid or late, never early.
    assert all((turn - turns[0]) / 0.1 >= number for number, turn in enumerate(turns))
