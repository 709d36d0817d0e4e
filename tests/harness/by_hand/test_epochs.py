"""Captures cut into phases by hand: several rounds, unlike epochs, transfers between samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from device_agents.protocol import EpochMarker, Phase
from harness.evidence.capture import Capture, HostWindow, Phased
from harness.evidence.unaccounted import Unaccounted
from harness.profiles.epochs import CutCapture, gather_phases, together, with_time_beside
from power import Window
from tests.harness.profile_captures import CLOCK, IDLE_W, Stretch, one_round, write
from tests.power.by_hand.made import measured

MS = 1_000_000


def two_rounds(folder: Path, **facts: Any) -> Capture:
    """Rounds of 2 + 1 s and of 1.5 + 0.5 + 0.25 s, at 3 W and 5 W; a wait and an upload of their own."""
    idle = Stretch(IDLE_W, 1.0, Phase.IDLE)
    stretches = [
        idle,
        Stretch(1.5, 0.25, Phase.DOWNLOAD, extra={"bytes": 700}),
        Stretch(3.0, 2.0, Phase.EPOCH, 1), Stretch(1.0, 0.5, Phase.WAIT), Stretch(3.0, 1.0, Phase.EPOCH, 2),
        Stretch(2.0, 0.25, Phase.DOWNLOAD, extra={"bytes": 900}),
        Stretch(5.0, 1.5, Phase.EPOCH, 1), Stretch(1.2, 0.25, Phase.WAIT), Stretch(5.0, 0.5, Phase.EPOCH, 2),
        Stretch(5.0, 0.25, Phase.EPOCH, 3),
        Stretch(0.9, 1.0, Phase.IDLE), replace(idle, watts=1.1, seconds=0.5),
    ]  # fmt: skip
    return write(folder, stretches, **facts)


def test_epochs_of_two_rounds(tmp_path: Path) -> None:
    cut = CutCapture(two_rounds(tmp_path / "c"))
    assert cut.session == 1
    assert [(e.round, e.epoch) for e in cut.epochs] == [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3)]
    assert [e.evidence.energy.label for e in cut.epochs][2:4] == ["round 2, epoch 1", "round 2, epoch 2"]
    joules = [6.0, 3.0, 7.5, 2.5, 1.25]
    assert [e.evidence.energy.energy_j for e in cut.epochs] == pytest.approx(joules, rel=2e-3)
    start_ns = cut.capture.phases()[1].start_ns
    assert (cut.epochs[0].start_ns, cut.epochs[0].end_ns) == (start_ns, start_ns + 2 * 10**9)
    assert all(e.usable and not e.throttled for e in cut.epochs)
    assert [w.energy.duration_s for w in cut.probes()] == pytest.approx([2.0, 1.5])
    assert [w.energy.duration_s for w in cut.later_epochs()] == pytest.approx([1.0, 0.5, 0.25])
    (two,), (three,) = cut.rounds(2), cut.rounds(3)
    assert (two.energy.label, two.energy.duration_s) == ("round 1", pytest.approx(3.0))
    assert two.energy.energy_j == pytest.approx(9.0, rel=2e-3)
    assert (three.energy.label, three.energy.duration_s) == ("round 2", pytest.approx(2.25))
    assert cut.rounds(1) == ()


def test_throttled_epochs_and_those_out_of_the_recording(tmp_path: Path) -> None:
    hot = CutCapture(two_rounds(tmp_path / "hot", throttled_epochs=(2,)), session=4)
    assert hot.session == 4
    assert [e.throttled for e in hot.epochs] == [False, True, False, True, False]
    assert [w.energy.duration_s for w in hot.later_epochs()] == pytest.approx([0.25])
    assert hot.rounds(2) == hot.rounds(3) == ()
    first = CutCapture(two_rounds(tmp_path / "first", throttled_epochs=(1,)))
    assert first.probes() == ()
    assert len(first.later_epochs()) == 3


def test_other_phases(tmp_path: Path) -> None:
    cut = CutCapture(two_rounds(tmp_path / "c"))
    waits = cut.every(Phase.WAIT)
    assert [w.energy.label for w in waits] == ["wait", "wait"]
    assert [w.energy.mean_power_w for w in waits] == pytest.approx([1.0, 1.2], rel=2e-2)
    assert cut.phase(Phase.WAIT) == waits
    assert cut.every(Phase.UPLOAD) == ()
    assert cut.bytes_of(Phase.DOWNLOAD) == 900  # the last
    assert cut.bytes_of(Phase.WAIT) is None
    beyond = replace(cut.capture, markers=(*cut.capture.markers, *marker_pair(Phase.WAIT, 10**11)))
    late = CutCapture(beyond)
    assert (len(late.every(Phase.WAIT)), len(late.phase(Phase.WAIT))) == (3, 2)


def marker_pair(kind: Phase, t_ns: int, **extra: Any) -> tuple[EpochMarker, ...]:
    return tuple(
        EpochMarker(kind=kind, edge=edge, t_dev_ns=t_ns + after, seq=99, extra=extra)
        for edge, after in (("start", 0), ("end", 10**9))
    )


def test_sizes_that_are_no_numbers_are_none(tmp_path: Path) -> None:
    capture = two_rounds(tmp_path / "c")
    odd = replace(capture, markers=(*capture.markers, *marker_pair(Phase.UPLOAD, 10**11, bytes="many")))
    assert CutCapture(odd).bytes_of(Phase.UPLOAD) is None
    real = replace(capture, markers=(*capture.markers, *marker_pair(Phase.UPLOAD, 10**11, bytes=12.0)))
    assert CutCapture(real).bytes_of(Phase.UPLOAD) == 12


def test_idle_is_the_first_two_stretches_and_all_of_them(tmp_path: Path) -> None:
    cut = CutCapture(two_rounds(tmp_path / "c"))
    assert cut.baseline is not None
    assert cut.baseline.after is not None
    assert cut.baseline.before.power_w == pytest.approx(IDLE_W, rel=1e-3)
    assert cut.baseline.after.power_w == pytest.approx(0.9, rel=1e-3)
    assert cut.baseline.before.energy.label == "idle"
    assert [w.energy.mean_power_w for w in cut.idle()] == pytest.approx([IDLE_W, 0.9, 1.1], rel=1e-3)
    assert {w.energy.label for w in cut.idle()} == {"idle"}
    assert cut.problems == []
    assert cut.load_baseline is None
    one = cut.measured(cut.probes(), cut.baseline)
    assert (one.windows, one.baseline) == (cut.probes(), cut.baseline)
    assert cut.measured(cut.probes()).baseline is None
    assert one.accuracy == cut.capture.recording.info.accuracy
    vars(cut.capture.recording)["notes"] = ("calibrated long ago",)
    assert cut.measured(cut.probes()).notes == ("calibrated long ago",)


def test_idle_out_of_the_recording(tmp_path: Path) -> None:
    outside = (HostWindow(start_ns=-(10**9), end_ns=0), HostWindow(start_ns=10**8, end_ns=9 * 10**8))
    cut = CutCapture(two_rounds(tmp_path / "c", idle=outside))
    assert cut.baseline is None
    (problem,) = cut.problems
    assert problem.startswith("c: idle interval 'idle': starts 1 s before")
    assert len(cut.idle()) == 1
    none = CutCapture(two_rounds(tmp_path / "none", idle=()))
    assert (none.baseline, none.idle(), none.problems) == (None, (), [])


def test_of_several_loads_alone_the_last_counts(tmp_path: Path) -> None:
    stretches = one_round([1.0, 1.0], load_w=2.5)
    stretches.insert(2, Stretch(4.0, 1.0, Phase.LOAD))
    cut = CutCapture(write(tmp_path / "c", stretches))
    assert cut.load_baseline is not None
    assert cut.load_baseline.before.power_w == pytest.approx(2.5, rel=2e-3)
    assert cut.load_baseline.before.energy.label == "background load alone"
    assert cut.load_baseline.after is None


def test_windows_between_samples_and_the_clock(tmp_path: Path) -> None:
    """Samples every millisecond; the level changes from 3 to 1 W at 3.25 s, markers half a sample before."""
    clock = CLOCK.model_copy(update={"sync_uncertainty_s": 0.003, "tau_s": 0.004})
    capture = two_rounds(tmp_path / "c", clock=clock)
    at_ns = 3_250 * MS
    windows = [
        Window(at_ns - 10 * MS, at_ns - MS, "before"),
        Window(at_ns + 200_000, at_ns + 600_000, "between"),
        Window(10**12, 10**12 + 300_000, "beyond"),
        Window(at_ns + 300_000, at_ns + 300_000, "nothing"),
        Window(at_ns + 100 * MS + 100_000, at_ns + 100 * MS + 300_000, "later"),
    ]
    before, between, beyond, nothing, later = gather_phases(capture, windows)
    assert before.energy.n_samples == 9
    # 3 and 4 ms are 5 ms: the last of them would reach 4 ms into 1 W.
    assert before.later_j == pytest.approx(-(3 - 1) * (4 + 0.5) * 1e-3, rel=0.2)
    assert between.energy.energy_j == pytest.approx(1.0 * 0.4e-3, rel=0.6)
    assert (between.energy.label, between.energy.n_samples) == ("between", 0)
    assert between.energy.duration_s == pytest.approx(0.4e-3)
    assert "between two samples: the power is that of the samples around it" in between.energy.notes
    wide = gather_phases(capture, [Window(at_ns + 200_000 - MS, at_ns + 600_000 + MS)])[0]
    assert between.energy.energy_j == pytest.approx((wide.energy.energy_j or 0) * 0.4 / 2.4)
    assert later.energy.energy_j == pytest.approx(0.2e-3, rel=1e-6)
    assert beyond.energy.energy_j is None
    assert nothing.energy.problems == ("the window does not end after it starts",)
    assert gather_phases(capture, []) == ()


@dataclass
class Told:
    """A capture that leaves over what a test says."""

    whole: Capture
    parts: tuple[Unaccounted, ...]

    @property
    def recording(self) -> Any:
        return self.whole.recording

    @property
    def record(self) -> Any:
        return self.whole.record

    def unaccounted(self) -> tuple[Unaccounted, ...]:
        return self.parts


def test_time_beside_epochs(tmp_path: Path) -> None:
    """Epochs 1 and 2 share 0.4 s, of which 0.3 s were at 1 W and 0.1 s at 1.2 W; 3 has 0.2 s unrecorded."""
    whole = two_rounds(tmp_path / "c")
    parts = (
        Unaccounted((7,), 1.0, 1.0, 0.0, ()),
        Unaccounted(
            (1, 2), 5.0, 3.0, 0.4,
            ((3_300 * MS, 3_600 * MS), (6_510 * MS, 6_610 * MS), (10**12, 10**12 + 5)),
        ),
        Unaccounted((3,), 1.0, 0.8, 0.2, ((10**12, 10**12 + 2 * 10**8),)),
    )  # fmt: skip
    phases = [Phased(Phase.EPOCH, n, 0, 1) for n in (1, 2, 3, 4)] + [Phased(Phase.WAIT, 1, 0, 1)]
    given = [measured(0, 2, 8.0 * n) for n in range(1, 6)]
    found = with_time_beside(Told(whole, parts), phases, given)  # type: ignore[arg-type]
    watts = (0.3 * 1.0 + 0.1 * 1.2) / 0.4
    assert [one.beside_s for one in found] == pytest.approx([0.2, 0.2, 0.2, 0.0, 0.0])
    assert [one.beside_j for one in found] == pytest.approx(
        [0.2 * watts, 0.2 * watts, 12.0 * 0.2, 0.0, 0.0], rel=1e-3
    )
    assert [one.energy for one in found] == [one.energy for one in given]
    none = with_time_beside(Told(whole, ()), phases, given)  # type: ignore[arg-type]
    assert none == tuple(given)


def test_nothing_between_samples_is_nothing(tmp_path: Path) -> None:
    """No power at all for a second."""
    capture = write(tmp_path / "c", [Stretch(0.0, 1.0)], local_epochs=1)
    (found,) = gather_phases(capture, [Window(500 * MS + 100_000, 500 * MS + 300_000)])
    assert (found.energy.energy_j, found.energy.charge_c, found.energy.n_samples) == (0.0, 0.0, 0)


def test_windows_without_energy_together() -> None:
    """None of their numbers is made up."""
    found = together([measured(0, 1, 0.0, charge_c=0.0), measured(2, 4, 0.0, charge_c=0.0)], "round")
    assert (found.energy.energy_j, found.energy.charge_c) == (0.0, 0.0)
    assert (found.energy.start_ns, found.energy.end_ns) == (0, 3 * 10**9)
    three = together([measured(0, 1, 1.0, loss_known=n != 2, lost_fraction=0.1 * n) for n in (1, 3, 2)], "")
    assert not three.energy.loss_known
    assert three.energy.lost_fraction == pytest.approx(0.3)
    assert math.isclose(three.energy.energy_j or 0, 3.0)
