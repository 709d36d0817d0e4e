"""Repetitions go on until the energy that predictions charge is known well enough."""

from pathlib import Path

import pytest

from harness.bench_run.queue import energy_per_epoch_j, is_narrow, marginal_per_epoch_j
from tests.harness.profile_captures import IDLE_W, load, one_round, write


def test_what_idle_or_the_load_draws_is_not_the_epochs(tmp_path: Path) -> None:
    alone = write(tmp_path / "alone", one_round([1.0, 1.0, 2.0]))
    assert energy_per_epoch_j(alone) == pytest.approx(1.5 * 3.0, rel=0.01)
    assert marginal_per_epoch_j(alone) == pytest.approx(1.5 * (3.0 - IDLE_W), rel=0.01)
    stretches = one_round([1.0, 1.0, 2.0], train_w=4.0, load_w=2.5)
    assert marginal_per_epoch_j(write(tmp_path / "beside", stretches, background=load(0.5))) == pytest.approx(
        1.5 * (4.0 - 2.5), rel=0.01
    )


def test_the_marginal_energy_has_to_be_narrow_not_the_gross_one(tmp_path: Path) -> None:
    """0.90 W and 0.94 W are near each other; above 0.8 W idle they are 0.10 W and 0.14 W."""
    folders = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    for folder, watts in zip(folders, (0.90, 0.94, 0.92), strict=True):
        write(folder, one_round([1.0, 1.0], train_w=watts))
    assert not is_narrow(folders, 0.1)
    assert is_narrow(folders, 0.5)


def test_without_idle_time_the_gross_energy_has_to_do(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    for folder, watts in zip(folders, (0.90, 0.94, 0.92), strict=True):
        capture = write(folder, one_round([1.0, 1.0], train_w=watts), idle=())
        assert marginal_per_epoch_j(capture) is None
    assert is_narrow(folders, 0.1)
