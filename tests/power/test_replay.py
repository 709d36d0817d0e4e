import threading
import time
from pathlib import Path

import numpy as np
import pytest

from joulefleet.errors import ConfigError, MeterError, StorageError
from joulefleet.provenance import Origin
from power.meter import PowerMeter, open_meter
from power.meters.replay import ReplayMeter
from power.model import Finding
from power.recording import Recording
from power.recording.recorder import record
from tests.power.synthetic import START_NS, block, config, samples_of, write_recording

NOISE = np.random.default_rng(5).normal(0.5, 0.01, 50_000).astype(np.float32)


@pytest.fixture
def source(tmp_path: Path) -> Recording:
    parts = [
        block(NOISE[:1500]),
        block(NOISE[1500:2000], first_index=1510, dropped_before=10),
        block(NOISE[2000:3000], first_index=2010),
    ]
    return write_recording(tmp_path / "source", parts, serial="123")


def replay(source: Recording, **options) -> PowerMeter:
    return open_meter(config(kind="replay", port=str(source.folder), options=options))


def test_it_plays_what_was_recorded(source: Recording) -> None:
    with replay(source, speed=0) as meter:
        played = list(meter.stream())
    recorded = list(source.blocks())
    for name in ("ticks", "current_a", "voltage_v"):
        np.testing.assert_array_equal(samples_of(played)[name], samples_of(recorded)[name])
    assert [(b.first_index, b.dropped_before) for b in played] == [
        (b.first_index, b.dropped_before) for b in recorded
    ]


@pytest.mark.parametrize("speed", [0, 20])
def test_times_move_to_now_and_are_not_stretched(source: Recording, speed: float) -> None:
    before_ns = time.monotonic_ns()
    with replay(source, speed=speed) as meter:
        t_ns = samples_of(meter.stream())["t_ns"]
    assert before_ns <= t_ns[0] <= time.monotonic_ns()
    np.testing.assert_array_equal(np.diff(t_ns), np.diff(samples_of(source.blocks())["t_ns"]))
    np.testing.assert_array_equal(meter.timebase.to_host_ns(samples_of(source.blocks())["ticks"]), t_ns)


def test_in_real_time_no_sample_comes_before_it_is_due(source: Recording) -> None:
    with ReplayMeter(source, speed=10.0) as meter:
        began_ns = time.monotonic_ns()
        for part in meter.stream():
            played_ns = int(part.ticks[-1]) * 1_000_000
            assert time.monotonic_ns() - began_ns >= played_ns / 10
            assert len(part) <= 1000  # a tenth of a second at ten times the speed


def test_a_recorded_replay_has_the_same_samples_and_findings_once(tmp_path: Path, source: Recording) -> None:
    gap = Finding(code="gap", severity="warning", message="samples were lost", count=10, first_index=1510)
    with_finding = Recording(source.folder, source.record.model_copy(update={"findings": (gap,)}))
    with ReplayMeter(with_finding, speed=0) as meter:
        done = record(meter, tmp_path / "again", config=config())
    again = Recording(tmp_path / "again", done)
    for name in ("ticks", "current_a", "voltage_v"):
        np.testing.assert_array_equal(samples_of(again.blocks())[name], samples_of(source.blocks())[name])
    assert done.dropped == 10
    assert done.findings == (gap,)


@pytest.mark.parametrize(
    ("kind", "emulated", "replayed_kind", "origin"),
    [
        ("monsoon-lvpm", False, "replay:monsoon-lvpm", Origin.IMPORTED),
        ("monsoon-lvpm", True, "replay:monsoon-lvpm", Origin.EMULATED),
        ("import:powertool-csv", False, "import:powertool-csv", Origin.IMPORTED),
    ],
)
def test_a_replay_never_gains_provenance(
    tmp_path: Path, kind: str, emulated: bool, replayed_kind: str, origin: Origin
) -> None:
    recording = write_recording(tmp_path / "0", [block(NOISE[:100])], kind=kind, emulated=emulated)
    before = recording.record.provenance("0").origin
    for generation in ("1", "2"):  # a replay of a replay is no better, and no worse
        with replay(recording, speed=0) as meter:
            assert meter.info.facts["replay_of_sha256"] == recording.record.sha256()
            done = record(meter, tmp_path / generation)
        recording = Recording(tmp_path / generation, done)
        assert (done.info.kind, done.info.emulated) == (replayed_kind, emulated)
        assert done.provenance(generation).origin is origin
        assert done.provenance(generation).origin.strength <= before.strength


def test_stop_ends_a_replay_that_waits(source: Recording) -> None:
    with ReplayMeter(source, speed=0.001) as meter:  # it would take the better part of an hour
        threading.Timer(0.2, meter.stop).start()
        assert len(list(meter.stream())) < 100


def test_a_meter_streams_once(source: Recording) -> None:
    with replay(source, speed=0) as meter:
        list(meter.stream())
        with pytest.raises(MeterError, match="streams once"):
            next(meter.stream())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"port": ""}, "no recording given"),
        ({"options": {"sped": 1}}, "sped: unknown key"),
        ({"options": {"speed": -1}}, "speed: .* got -1"),
        ({"options": {"speed": "fast"}}, "speed: .* got 'fast'"),
        ({"options": {"speed": True}}, "speed: .* got True"),
        ({"serial": "124"}, "serial '123', not '124'"),
    ],
)
def test_bad_configuration(source: Recording, values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_meter(config(**{"kind": "replay", "port": str(source.folder), **values}))


def test_there_must_be_a_recording(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no recording here"):
        open_meter(config(kind="replay", port=str(tmp_path)))


def test_it_is_a_power_meter(source: Recording) -> None:
    meter = replay(source)
    assert isinstance(meter, PowerMeter)
    assert meter.timebase.host_ns[0] == START_NS  # until the stream begins
