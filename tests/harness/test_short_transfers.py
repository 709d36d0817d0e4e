"""Transfers between two samples, and those of which no energy is known: profiles and rounds alike."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from device_agents.protocol import Phase
from harness.evidence.capture import Capture
from harness.profiles.build import build_profile
from harness.profiles.epochs import _beside, _narrowed, together
from harness.rounds.measured import client_cost, read_part
from power.energy import MeasuredWindow, Window
from power.energy.windows import WindowEnergy
from tests.harness.profile_captures import IDLE_W, one_round, write

SHORT_S = 2e-4
"""A fifth of the time between two samples; markers lie half a sample before the level changes."""


def lasting(capture: Capture, kind: Phase, seconds: float) -> Capture:
    """The same capture with a phase that ends so long after it began."""
    start_ns = next(m.t_dev_ns for m in capture.markers if m.kind is kind)
    end_ns = start_ns + round(seconds * 1e9)
    moved = [
        m.model_copy(update={"t_dev_ns": end_ns}) if (m.kind, m.edge) == (kind, "end") else m
        for m in capture.markers
    ]
    return replace(capture, markers=tuple(moved))


def test_a_transfer_between_two_samples_has_the_power_around_it(tmp_path: Path) -> None:
    """Samples show 1.5 W in the download; half of those around its beginning are idle at 0.8 W."""
    capture = lasting(write(tmp_path / "c", one_round([1.0, 1.0])), Phase.DOWNLOAD, SHORT_S)
    reading = read_part(capture, "gross").readings["download"]
    profiled = build_profile([capture]).download
    assert profiled is not None
    assert reading.complete
    assert reading.duration_s == pytest.approx(SHORT_S)
    assert IDLE_W * SHORT_S < reading.energy_j < 1.5 * SHORT_S
    assert profiled.duration_s.mean == pytest.approx(SHORT_S)
    assert profiled.gross_j.mean == pytest.approx(reading.energy_j)
    assert profiled.gross_j.half_width_95 is not None
    assert profiled.gross_j.half_width_95 > 0
    net_j = read_part(capture, "net").readings["download"].energy_j
    assert profiled.energy_j("net").mean == pytest.approx(net_j)


def test_durations_come_from_all_transfers_also_from_those_without_energy(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole", one_round([1.0, 1.0]))
    beyond = lasting(write(tmp_path / "beyond", one_round([1.0, 1.0])), Phase.UPLOAD, 60.0)
    upload = build_profile([whole, beyond]).upload
    assert upload is not None
    assert (upload.duration_s.mean, upload.duration_s.n) == (pytest.approx((0.3 + 60) / 2), 2)
    assert upload.gross_j.mean == pytest.approx(0.6, rel=5e-3)
    assert upload.gross_j.n == 1
    alone = build_profile([beyond])
    assert alone.upload is None
    (note,) = [note for note in alone.notes if note.startswith("upload")]
    assert "its energy is not known: ends" in note


def test_an_energy_that_is_not_known_is_no_number(tmp_path: Path) -> None:
    beyond = lasting(write(tmp_path / "beyond", one_round([1.0, 1.0])), Phase.UPLOAD, 60.0)
    part = read_part(beyond, "gross")
    assert not part.readings["upload"].complete
    assert part.problems[0].startswith("board, upload: its energy is not known: ends")
    measured = client_cost([part], probed=True)
    assert measured.upload_s[0] == pytest.approx(60.0)
    assert math.isnan(measured.upload_j[0])
    assert measured.train_j[0] > 0
    assert measured.unknown.tolist() == [True]
    assert measured.known().upload_j[0] == 0.0


# Windows unlike each other in every field, put together and cut.


def window(k: int, **changes: object) -> MeasuredWindow:
    """The k-th: every number is another one."""
    energy = WindowEnergy(
        f"w{k}", k * 10**9, k * 10**9 + (1 + k) * 10**8, 2.0 * k, 3.0 * k, 10 * k, 0.01 * k,
        loss_known=True, bridged_s=0.02 * k, range_energy_j=(0.5 * k, 1.5 * k),
        range_volt_s=(0.25 * k, 0.75 * k), notes=(f"note {k}", "same"),
    )  # fmt: skip
    return MeasuredWindow(
        replace(energy, **changes),
        earlier_j=-0.1 * k,
        later_j=0.3 * k,
        noise_j=3.0 * k,
        loss_j=5.0 * k,
        beside_s=0.07 * k,
        beside_j=0.11 * k,
    )


def test_windows_together_last_as_long_as_they_do_and_cost_as_much() -> None:
    """Of 0.2 and 0.4 s: what one clock error does adds, what is independent adds in squares."""
    found = together([window(1), window(3, loss_known=False)], "round")
    energy = found.energy
    assert (energy.label, energy.start_ns, energy.end_ns) == ("round", 10**9, 10**9 + 6 * 10**8)
    assert (energy.energy_j, energy.charge_c, energy.n_samples) == (8.0, 12.0, 40)
    assert (energy.lost_fraction, energy.loss_known) == (0.03, False)
    assert energy.bridged_s == pytest.approx(0.08)
    assert (energy.range_energy_j, energy.range_volt_s) == ((2.0, 6.0), (1.0, 3.0))
    assert energy.notes == ("note 1", "same", "note 3")
    assert (found.earlier_j, found.later_j) == (pytest.approx(-0.4), pytest.approx(1.2))
    assert (found.noise_j, found.loss_j) == (pytest.approx(3 * 10**0.5), pytest.approx(5 * 10**0.5))
    assert (found.beside_s, found.beside_j) == (pytest.approx(0.28), pytest.approx(0.44))
    assert together([window(1), window(2, problems=("torn",))], "").energy.problems == ("torn",)
    assert together([window(1), window(2)], "").energy.loss_known


def test_a_window_between_two_samples_has_its_share_of_a_wider_one() -> None:
    """0.1 s of 0.5 s."""
    found = _narrowed(window(4), Window(4_200_000_000, 4_300_000_000, "short"))
    energy = found.energy
    assert (energy.label, energy.start_ns, energy.end_ns) == ("short", 4_200_000_000, 4_300_000_000)
    assert (energy.energy_j, energy.charge_c) == (pytest.approx(1.6), pytest.approx(2.4))
    assert (energy.n_samples, energy.lost_fraction) == (0, 0.04)
    assert energy.bridged_s == pytest.approx(0.016)
    assert energy.range_energy_j == pytest.approx((0.4, 1.2))
    assert energy.range_volt_s == pytest.approx((0.2, 0.6))
    assert energy.notes[:2] == ("note 4", "same")
    assert "between two samples" in energy.notes[2]
    assert (found.earlier_j, found.later_j) == (pytest.approx(-0.08), pytest.approx(0.24))
    assert (found.noise_j, found.loss_j) == (pytest.approx(2.4), pytest.approx(4.0))


def test_time_beside_a_window_adds_the_power_seen_there_or_the_windows_own() -> None:
    """To 0.14 s and 0.22 J come 0.5 s: of 0.9 W, or of the 13.3 W that 4 J in 0.3 s are."""
    seen = _beside(window(2), 0.5, 0.9)
    assert (seen.beside_s, seen.beside_j) == (pytest.approx(0.64), pytest.approx(0.22 + 0.45))
    unseen = _beside(window(2), 0.5, None)
    assert (unseen.beside_s, unseen.beside_j) == (pytest.approx(0.64), pytest.approx(0.22 + 4.0 / 0.3 * 0.5))
    assert _beside(window(2, energy_j=None), 0.5, None).beside_j == pytest.approx(0.22)
