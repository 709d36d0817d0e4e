"""`meter watch`: the sums by hand, then a real driver on an emulated meter."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from harness.cli import run
from harness.cli.meter.watch import Watched
from joulefleet.errors import DataQualityError
from power import SampleBlock
from power.emulated.options import EmulatorOptions
from power.emulated.service import EmulatorProcess

LIMITS = ["--voltage", "4", "--voltage-max", "4.2", "--current-limit", "3"]


def block(first: int, start_ms: int, watts: list[float], dropped: int | None = 0) -> SampleBlock:
    """Samples of 1 V, a millisecond apart."""
    t_ns = (start_ms + np.arange(len(watts))) * 1_000_000
    power_w = np.array(watts, np.float32)
    ticks = first + np.arange(len(watts))
    return SampleBlock(t_ns, ticks, power_w, np.ones(len(watts), np.float32), first, dropped)


def test_joules_by_hand() -> None:
    seen = Watched()
    seen.add(block(0, 0, [1.0, 3.0]))  # 2 mJ
    seen.add(block(2, 2, [5.0]))  # from 3 to 5 W: 4 mJ
    assert seen.energy_j == pytest.approx(6e-3)
    assert (seen.lowest_w, seen.highest_w, seen.n_samples, seen.lost) == (1.0, 5.0, 3, 0)
    assert seen.data()["mean_power_w"] == pytest.approx(3.0)
    assert seen.data()["energy_is_lower_bound"] is False


def test_a_gap_is_not_filled() -> None:
    seen = Watched()
    seen.add(block(0, 0, [2.0, 2.0]))  # 2 mJ
    seen.add(block(12, 12, [4.0, 4.0], dropped=10))  # 4 mJ, 11 ms not seen
    assert seen.energy_j == pytest.approx(6e-3)
    assert (seen.lost, seen.unseen_s) == (10, pytest.approx(0.011))
    assert seen.data()["mean_power_w"] == pytest.approx(3.0)
    assert seen.cells()["so far"].startswith(">= ")


def test_what_the_instrument_skips_itself_is_joined_as_in_a_recording() -> None:
    seen = Watched()
    seen.add(block(0, 0, [2.0, 2.0]))  # 2 mJ
    seen.add(block(4, 4, [4.0, 4.0]))  # an LVPM reads its calibration in between: 9 mJ, then 4 mJ
    assert seen.energy_j == pytest.approx(15e-3)
    assert seen.data()["energy_is_lower_bound"] is False
    assert seen.cells()["so far"].startswith("0.015 J")


def test_losses_that_nobody_counts_are_unknown() -> None:
    seen = Watched()
    seen.add(block(0, 0, [1.0, 1.0], dropped=None))
    seen.add(block(2, 2, [1.0, 1.0], dropped=0))
    assert seen.data()["lost"] is None
    assert seen.cells()["lost"] == "unknown"


def test_nothing_is_known_of_nothing() -> None:
    data = Watched().data()
    assert (data["energy_j"], data["mean_power_w"], data["lowest_w"]) == (None, None, None)


def test_what_is_no_number_is_not_added() -> None:
    with pytest.raises(DataQualityError, match="not a finite number"):
        Watched().add(block(0, 0, [1.0, float("nan")]))


@pytest.fixture(scope="module")
def lvpm() -> Iterator[list[str]]:
    options = EmulatorOptions(signal="constant:current=0.4,voltage=4.0", noise_a=0.001, serial="321")
    with EmulatorProcess("monsoon-lvpm", options) as instrument:
        yield ["--kind", "monsoon-lvpm", "--port", instrument.address, *LIMITS]


def test_an_emulated_meter_is_watched(
    lvpm: list[str], capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["meter", "watch", *lvpm, "--seconds", "1.2", "--json"]) == 0
    out, err = capfd.readouterr()
    said = json.loads(out)
    assert said["emulated"] is True
    assert said["mean_power_w"] == pytest.approx(1.6, rel=0.02)
    if not said["lost"]:  # a busy machine loses samples, and then it says so
        assert said["energy_j"] == pytest.approx(1.6 * said["seconds"], rel=0.02)
    assert 1.5 < said["lowest_w"] < said["mean_power_w"] < said["highest_w"] < 1.7
    assert "so far" in err  # no terminal: a line a second
    assert not list(tmp_path.iterdir())  # nothing is recorded


def test_a_meter_that_is_silent_is_not_shown_as_if_it_spoke(capfd: pytest.CaptureFixture[str]) -> None:
    options = EmulatorOptions(signal="constant:current=0.4,voltage=4.0", faults=("stall@2:2.5",))
    with EmulatorProcess("monsoon-lvpm", options) as instrument:
        port = ["--kind", "monsoon-lvpm", "--port", instrument.address, *LIMITS]
        assert run(["meter", "watch", *port, "--seconds", "5"]) == 0
    lines = capfd.readouterr().err.splitlines()
    assert any(line.startswith("power no sample for ") for line in lines), lines
    assert any(line.startswith("power 1.") for line in lines), lines


def test_ctrl_c_ends_it_cleanly(lvpm: list[str]) -> None:
    command = [sys.executable, "-m", "harness", "meter", "watch", *lvpm, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "so far" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        began_s = time.monotonic()
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert json.loads(out)["n_samples"] > 1000
    assert "Traceback" not in err
    assert time.monotonic() - began_s < 20
