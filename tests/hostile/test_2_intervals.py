"""Class 2: time that no marker accounts for is in the intervals of a profile, by hand arithmetic."""

import math
from pathlib import Path

import pytest

from device_agents.protocol import Phase
from device_agents.session.host_times import Exchange, HostTimes
from harness.bench.job.verify import require_accounted
from harness.evidence.capture import Capture
from harness.evidence.clock_fit import PingObservation
from harness.profiles.build import build_profile
from harness.rounds.measured import read_part
from tests.harness.profile_captures import CLOCK, IDLE_W, Stretch, write

TRAIN_W = 3.0
TRIP_NS = 4_000_000
S = 10**9
T_2 = 4.302653  # Student's t, 0.975, two degrees of freedom
EXTENT = 1.959964 / math.sqrt(3)


def told(hidden_s: float, epoch_s: float, disguised_s: float = 0.0) -> list[Stretch]:
    """A round of three epochs; after each of the last two, training goes on that is no epoch's.

    A part of the first may be called a warm-up.
    """
    more = [Stretch(TRAIN_W, hidden_s)] if hidden_s else []
    return [
        Stretch(IDLE_W, 2.0, Phase.IDLE),
        Stretch(IDLE_W, 0.1),
        Stretch(1.5, 0.4, Phase.DOWNLOAD, extra={"bytes": 1000}),
        Stretch(IDLE_W, 0.3, Phase.SETUP),
        Stretch(TRAIN_W, disguised_s, Phase.WARMUP, 1),
        Stretch(TRAIN_W, 1.0 - disguised_s, Phase.EPOCH, 1),
        Stretch(1.0, 0.5, Phase.WAIT),
        Stretch(TRAIN_W, epoch_s, Phase.EPOCH, 2),
        *more,
        Stretch(TRAIN_W, epoch_s, Phase.EPOCH, 3),
        *more,
        Stretch(2.0, 0.3, Phase.UPLOAD, extra={"bytes": 900}),
        Stretch(IDLE_W, 0.1),
        Stretch(IDLE_W, 2.0, Phase.IDLE),
    ]


def capture(folder: Path, hidden_s: float, epoch_s: float = 1.0, disguised_s: float = 0.0) -> Capture:
    """Half of a round trip lies on each side of what the device does between two messages."""
    at_ns, half_ns = [0], TRIP_NS // 2
    for stretch in told(hidden_s, epoch_s, disguised_s):
        at_ns.append(at_ns[-1] + round(stretch.seconds * S))
    begin_ns, loaded_ns, probed_ns, decided_ns = at_ns[2], at_ns[3], at_ns[6], at_ns[7]
    uploading_ns = at_ns[-4]
    exchanges = (
        Exchange(what="model", heard_ns=begin_ns + half_ns, sent_ns=loaded_ns - half_ns),
        Exchange(what="probe", heard_ns=probed_ns + half_ns, sent_ns=decided_ns - half_ns, answer="continue"),
        Exchange(what="result", heard_ns=uploading_ns + half_ns, sent_ns=at_ns[-3] - half_ns),
    )
    times = HostTimes(sent_ns=begin_ns - half_ns, exchanges=exchanges, done_ns=at_ns[-3] + half_ns)
    ping = PingObservation(sent_ns=0, t_dev_ns=half_ns, received_ns=TRIP_NS)
    return write(folder, told(hidden_s, epoch_s, disguised_s), host_times=times, pings=(ping,))


def test_an_honest_round_leaves_nothing(tmp_path: Path) -> None:
    left = capture(tmp_path / "honest", 0.0).unaccounted()
    assert [part.epochs for part in left] == [(1,), (2, 3)]
    assert [part.seconds for part in left] == pytest.approx([0.0, 0.0], abs=0.002)


def test_a_capture_of_before_says_nothing(tmp_path: Path) -> None:
    assert write(tmp_path / "old", told(0.5, 1.0)).unaccounted() == ()


def test_the_interval_reaches_the_truth(tmp_path: Path) -> None:
    """Epochs of 1 s, 1.1 s and 1.2 s that hide 0.5 s, 0.6 s and 0.4 s each."""
    hidden_s, epochs_s = [0.5, 0.6, 0.4], [1.0, 1.1, 1.2]
    captures = [
        capture(tmp_path / f"c{i}", h, e) for i, (h, e) in enumerate(zip(hidden_s, epochs_s, strict=True))
    ]
    epoch = build_profile(captures).epoch
    assert epoch.duration_s.n == 3
    assert epoch.duration_s.mean == pytest.approx(1.1, abs=1e-9)
    assert epoch.duration_s.sd == pytest.approx(0.1, abs=1e-9)
    by_hand_s = math.hypot(T_2 * 0.1 / math.sqrt(3), EXTENT * 0.5)
    assert epoch.duration_s.half_width_95 == pytest.approx(by_hand_s, abs=0.002)
    assert epoch.duration_s.mean + (epoch.duration_s.half_width_95 or 0) > 1.6  # what the truth is
    scatter_j = T_2 * 0.1 * TRAIN_W / math.sqrt(3)
    assert epoch.gross_j.mean == pytest.approx(1.1 * TRAIN_W, rel=1e-3)
    by_hand_j = math.hypot(scatter_j, EXTENT * 0.5 * TRAIN_W)
    assert epoch.gross_j.half_width_95 == pytest.approx(by_hand_j, rel=0.01)
    assert epoch.net_j is not None
    scatter_j *= (TRAIN_W - IDLE_W) / TRAIN_W
    by_hand_j = math.hypot(scatter_j, EXTENT * 0.5 * (TRAIN_W - IDLE_W))
    assert epoch.net_j.half_width_95 == pytest.approx(by_hand_j, rel=0.01)


def test_a_round_has_what_its_epochs_hide(tmp_path: Path) -> None:
    captures = [capture(tmp_path / f"c{i}", 0.5, e) for i, e in enumerate([1.0, 1.1, 1.2])]
    profile = build_profile(captures)
    assert profile.round is not None
    extent_s = math.hypot(T_2 * 0.2 / math.sqrt(3), EXTENT * 1.0)
    assert profile.round.duration_s.half_width_95 == pytest.approx(extent_s, abs=0.005)
    assert profile.probe.duration_s.half_width_95 == pytest.approx(0.0, abs=0.005)


def test_a_measured_round_has_it_too(tmp_path: Path) -> None:
    honest = read_part(capture(tmp_path / "honest", 0.0), "gross").readings["train"]
    hiding = read_part(capture(tmp_path / "hiding", 0.5), "gross").readings["train"]
    assert hiding.energy_j == pytest.approx(honest.energy_j, rel=1e-3)
    assert hiding.clock_j == pytest.approx(2 * 0.5 * TRAIN_W / math.sqrt(3), rel=0.01)
    assert honest.clock_j < 0.02 * TRAIN_W


def test_a_first_epoch_that_is_called_something_else(tmp_path: Path) -> None:
    """It is shorter than the later ones, and before it the device drew what they draw."""
    disguised_s = [0.5, 0.6, 0.4]
    captures = [capture(tmp_path / f"c{i}", 0.0, 1.0, d) for i, d in enumerate(disguised_s)]
    assert [c.unaccounted()[0].disguised_s for c in captures] == pytest.approx(disguised_s, abs=0.004)
    profile = build_profile(captures)
    probe = profile.probe
    assert (probe.duration_s.n, probe.duration_s.mean) == (3, pytest.approx(0.5, abs=1e-9))
    by_hand_s = math.hypot(T_2 * 0.1 / math.sqrt(3), EXTENT * 0.5)
    assert probe.duration_s.half_width_95 == pytest.approx(by_hand_s, abs=0.005)
    assert probe.duration_s.mean + (probe.duration_s.half_width_95 or 0) > 1.0  # what the truth is
    by_hand_j = TRAIN_W * by_hand_s
    assert probe.gross_j.half_width_95 == pytest.approx(by_hand_j, rel=0.02)
    assert profile.epoch.duration_s.half_width_95 == pytest.approx(0.0, abs=0.005)


@pytest.mark.parametrize(
    ("watts", "found_s"),
    [(TRAIN_W, 0.5), (IDLE_W + (TRAIN_W - IDLE_W) / 5, 0.1), (IDLE_W, 0.0), (0.1, 0.0), (30.0, 0.5)],
)
def test_what_lies_before_a_first_epoch_is_as_long_as_its_energy_allows(
    tmp_path: Path, watts: float, found_s: float
) -> None:
    """The first of three epochs is half as long as the others: half a second of it may be hidden."""
    stretches = told(0.0, 1.0, 0.5)
    stretches[4] = Stretch(watts, 0.5, Phase.SETUP)
    times = capture(tmp_path / "times", 0.0, 1.0, 0.5).record.host_times
    lived = write(tmp_path / "lived", stretches, host_times=times)
    assert lived.unaccounted()[0].disguised_s == pytest.approx(found_s, abs=0.005)


def test_first_epochs_that_are_alike_or_longer_hide_nothing(tmp_path: Path) -> None:
    for epoch_s in (0.5, 0.96, 1.0, 1.04):
        lived = capture(tmp_path / f"{epoch_s}", 0.0, epoch_s)
        assert [part.disguised_s for part in lived.unaccounted()] == [0.0, 0.0]


def test_a_reader_is_told_of_a_first_epoch_that_is_short(tmp_path: Path) -> None:
    short, alike = (capture(tmp_path / f"{d}", 0.0, 1.0, d) for d in (0.5, 0.03))
    (finding,) = require_accounted(short.recording, short.unaccounted())
    assert finding.code == "first_epoch_short"
    assert "0.5 s" in finding.message
    assert require_accounted(alike.recording, alike.unaccounted()) == ()


def test_a_wait_before_its_report_was_heard_is_no_alibi(tmp_path: Path) -> None:
    """The first epoch ends early by its marker, and the wait begins there."""
    stretches = told(0.0, 1.0)
    stretches[5] = Stretch(TRAIN_W, 0.1, Phase.EPOCH, 1)
    stretches[6:7] = [Stretch(TRAIN_W, 0.9, Phase.WAIT), Stretch(1.0, 0.5)]
    times = capture(tmp_path / "true", 0.0).record.host_times
    lying = write(tmp_path / "lying", stretches, host_times=times, clock=CLOCK)
    probe, _ = lying.unaccounted()
    assert (probe.epochs, probe.trained_s) == ((1,), pytest.approx(0.1))
    assert probe.seconds == pytest.approx(0.9, abs=0.01)
