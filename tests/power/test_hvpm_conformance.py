"""A client nobody here wrote, the vendor's own package, against the emulated unit; and ours beside it."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import numpy as np
import pytest

from power.emulated.options import EmulatorOptions
from power.emulated.service import EmulatorProcess
from power.meter import MeterConfig, open_meter
from tests.conftest import FULL_COUNTS, REPOSITORY

PEER = REPOSITORY / "tests" / "peers" / "pymonsoon_hvpm.py"


def run_peer(python: str, address: str, model: str, channel: str) -> dict[str, Any]:
    done = subprocess.run(
        [python, str(PEER), address, model, channel],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "mismatch" not in done.stdout
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def run_ours(address: str, channel: str) -> tuple[np.ndarray, np.ndarray]:
    config = MeterConfig.model_validate(
        {
            "kind": "monsoon-hvpm",
            "port": address,
            "voltage_v": 4.2,
            "voltage_max_v": 4.2,
            "current_limit_a": 5.0,
            "channel": channel,
            "options": {"calibration_ms": 20},
        }
    )
    blocks = []
    with open_meter(config) as meter:
        for block in meter.stream():
            blocks.append(block)
            if block.ticks[-1] > 1500:
                meter.stop()
    return np.concatenate([b.current_a for b in blocks]), np.concatenate([b.voltage_v for b in blocks])


# One of each model, range and kind of channel; the campaign has the others too.
UNITS = [("hv", "main", 0.25), ("hv", "aux", 0.1), ("lv", "usb", 0.02)]
MORE_UNITS = [("hv", "main", 0.02), ("lv", "main", 0.25)] if FULL_COUNTS else []


@pytest.mark.campaign
@pytest.mark.parametrize(("model", "channel", "current_a"), [*UNITS, *MORE_UNITS])
def test_the_vendors_package_reads_what_we_read(
    peer_python: str, model: str, channel: str, current_a: float
) -> None:
    options = EmulatorOptions(
        signal=f"constant:current={current_a},voltage=4.0",
        variant=f"patient,{model},{channel}",
        serial="4711",
    )
    with EmulatorProcess("monsoon-hvpm", options) as unit:
        peer = run_peer(peer_python, unit.address, model, channel)
        ours_a, ours_v = run_ours(unit.address, channel)
        statistics = unit.close()
    assert statistics["dropped"] == 0
    assert peer["seen"] == {"product": "Mobile Device Power Monitor", "endpoints": [0x81]}
    assert peer["serials"] == ["4711"]
    assert peer["status"]["serialNumber"] == 4711
    assert peer["status"]["firmwareVersion"] == 32
    assert peer["status"]["hardwareModel"] == (2 if model == "hv" else 1)
    assert peer["status"]["powerupTime"] == 30
    if model == "hv":
        assert peer["status"]["runtimeCurrentLimit"] == pytest.approx(3.0, abs=0.001)
        assert peer["temperature_limit_c"] == 55.5
    assert peer["output_v"] == pytest.approx(4.2, abs=1e-5)
    current, voltage = peer[f"{channel}_ma"], peer["usb_v" if channel == "usb" else "main_v"]
    assert current["n"] >= 2500
    assert current["min"] == current["max"]
    step_a = 2e-6 if current_a < 0.03 else 200e-6
    assert current["mean"] * 1e-3 == pytest.approx(current_a, abs=step_a)
    assert ours_a == pytest.approx(current["mean"] * 1e-3, rel=1e-9)
    assert voltage["mean"] == pytest.approx(4.2 if channel == "main" else 4.0, abs=260e-6)
    assert ours_v == pytest.approx(voltage["mean"], rel=1e-9)
