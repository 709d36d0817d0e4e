"""What the capture pipeline does when nobody reads the instrument for a while."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from joulefleet.errors import MeterError, MeterSilent
from power.meters import streaming
from power.recording import open_recording
from power.recording.recorder import record
from power.wire.hvpm_continuity import A_FALL
from power.wire.hvpm_control import SAMPLE_RATE_HZ
from tests.power.synthetic import BytesMeter, frames

CURRENT_A = np.random.default_rng(7).normal(0.5, 0.01, 300)


def paused_after_100(seconds: float) -> Iterator[bytes]:
    """An instrument that goes on while its reader does not: what it sends next has lost count."""
    yield frames(0, CURRENT_A[:100])
    time.sleep(seconds)
    yield frames(100, CURRENT_A[100:200])


def assert_ends_after_100(folder: Path) -> None:
    recording = open_recording(folder)
    assert recording.record.n_samples == 100
    assert [f.code for f in recording.record.findings] == ["capture_failed"]


def test_a_reader_that_was_paused_ends_the_stream_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "STALL_S", 0.5)
    with (
        BytesMeter(paused_after_100(1.0)) as meter,
        pytest.raises(MeterSilent, match=r"was not read for 1\.\d s") as caught,
    ):
        record(meter, tmp_path)
    assert "suspended" in caught.value.hint
    assert_ends_after_100(tmp_path)


def test_a_short_pause_is_none(tmp_path: Path) -> None:
    with BytesMeter(paused_after_100(0.2)) as meter:
        assert record(meter, tmp_path).n_samples == 200


def test_a_longer_pause_is_marked_at_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "PAUSE_S", 0.3)
    with BytesMeter(paused_after_100(0.6)) as meter:
        assert meter.info.timeout_s(0.3) < 0.6
        findings = record(meter, tmp_path).findings
    (pause,) = [finding for finding in findings if finding.code == "late_data"]
    assert (pause.severity, pause.first_index) == ("info", 100)
    assert "nothing arrived for 0.6 s" in pause.message


def test_a_machine_that_slept_ends_the_stream_although_its_clock_stood_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept_ns = itertools.chain([0, 0], itertools.repeat(1800 * 10**9))
    monkeypatch.setattr(streaming, "_sleepless_ns", lambda: time.monotonic_ns() + next(slept_ns))
    with BytesMeter(paused_after_100(0.0)) as meter, pytest.raises(MeterSilent, match="not read for 1800"):
        record(meter, tmp_path)
    assert_ends_after_100(tmp_path)


def test_the_stream_ends_long_before_an_hvpm_loses_count() -> None:
    assert streaming.STALL_S * SAMPLE_RATE_HZ < A_FALL / 2


def test_samples_that_nobody_takes_end_the_stream_and_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "TAKEN_WITHIN_S", 0.4)
    sent = 0

    def steady() -> Iterator[bytes]:
        nonlocal sent
        for sent in range(1, 1000):
            yield frames(10 * (sent - 1), np.full(10, 0.5))
            time.sleep(0.02)

    taken = 0
    with (
        BytesMeter(steady()) as meter,
        pytest.raises(MeterError, match=r"nobody has taken its samples for 0\.4 s"),
    ):
        for block in meter.stream():
            taken += len(block)
            time.sleep(1.5)  # a disk that hangs
    assert taken == 10 * sent
    assert sent < 200
