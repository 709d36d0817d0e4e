"""A client nobody here wrote against our emulated LVPM: Mobly 1.10.1, the last release with a Monsoon."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from power.emulated.options import EmulatorOptions
from power.emulated.service import EmulatorProcess
from tests.conftest import REPOSITORY

STEP_A = 2 * 2.88 / 15_600


def run_mobly(peer_python: str, options: EmulatorOptions) -> tuple[dict[str, Any], dict[str, int]]:
    with EmulatorProcess("monsoon-lvpm", options) as unit:
        script = REPOSITORY / "tests" / "peers" / "mobly_lvpm.py"
        done = subprocess.run(
            [peer_python, str(script), unit.address], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1]), unit.close()


def test_mobly_reads_and_sets_everything(peer_python: str) -> None:
    options = EmulatorOptions(
        serial="4711", signal="constant:current=0.25,voltage=4.0", variant="joined-writes"
    )
    seen, statistics = run_mobly(peer_python, options)
    # The firmware answers every setting by a status packet, which Mobly does not read: it drops them later.
    answers = "Wanted data, dropped type=0x10"
    assert {complaint[: len(answers)] for complaint in seen["complaints"]} <= {answers}
    later = ("Wanted status, dropped type=0x2", "Data sequence skipped", answers)
    for complaint in seen["later_complaints"]:
        assert complaint.startswith(later), complaint
    assert statistics["discarded_bytes"] == 0

    first, changed = seen["first"], seen["changed"]
    assert (first["serialNumber"], first["sampleRate"]) == (4711, 5)
    assert first["outputVoltageSetting"] == pytest.approx(4.0)
    assert changed["outputVoltageSetting"] == pytest.approx(3.7, abs=0.0101)  # Mobly truncates
    assert changed["runTimeCurrentLimit"] == pytest.approx(2.5, abs=8 / 1023)
    assert changed["powerUpCurrentLimit"] == pytest.approx(3.5, abs=8 / 1023)
    assert changed["usbPassthroughMode"] == 2
    assert seen["passthrough"] == 0
    assert seen["setting_when_off"] == changed["outputVoltageSetting"]

    assert seen["samples"] == 500
    assert seen["average_ma"] == pytest.approx(250, abs=STEP_A * 1000 / 2)
    assert seen["average_mw"] == pytest.approx(250 * changed["outputVoltageSetting"], rel=1e-3)
    assert seen["full_rate_samples"] == 3000  # one sample per packet less without the trailing byte


def test_mobly_sees_both_ranges(peer_python: str) -> None:
    options = EmulatorOptions(
        serial="4711", signal="square:low=0.010,high=0.5,period=0.1", variant="joined-writes"
    )
    seen, _ = run_mobly(peer_python, options)
    levels = seen["full_rate_a"]
    low = [a for a in levels if a < 0.1]
    high = [a for a in levels if a >= 0.1]
    assert sum(low) / len(low) == pytest.approx(0.010, abs=1.4e-6)  # half a fine step
    assert sum(high) / len(high) == pytest.approx(0.5, abs=STEP_A / 2)
    assert len(low) == pytest.approx(len(high), rel=0.1)
