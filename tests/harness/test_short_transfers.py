"""Transfers between two samples, and those of which no energy is known: profiles and rounds alike."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from device_agents.protocol import Phase
from harness.evidence.capture import Capture
from harness.profiles.build import build_profile
from harness.rounds.measured import client_cost, read_part
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


def test_an_energy_that_is_not_known_is_charged_as_nothing_and_compared_with_nothing(tmp_path: Path) -> None:
    beyond = lasting(write(tmp_path / "beyond", one_round([1.0, 1.0])), Phase.UPLOAD, 60.0)
    part = read_part(beyond, "gross")
    assert not part.readings["upload"].complete
    assert part.problems[0].startswith("board, upload: its energy is not known: ends")
    charged = client_cost([part], probed=True)
    assert (charged.upload_s[0], charged.upload_j[0]) == (pytest.approx(60.0), 0.0)
    measured = client_cost([part], probed=True, unknown_j=math.nan)
    assert math.isnan(measured.upload_j[0])
    assert measured.train_j[0] == charged.train_j[0] > 0
