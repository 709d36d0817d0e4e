import json
import subprocess

import numpy as np
import pytest

from power.emulated.ina219.board import config_for_rate
from power.emulated.ina219.chip import Ina219Chip
from power.wire.ina219.registers import BusBits, Register
from tests.conftest import REPOSITORY

US = 1000


def chip_with(shunt_v: float, bus_v: float) -> Ina219Chip:
    return Ina219Chip(lambda t_ns: (np.full(len(t_ns), shunt_v), np.full(len(t_ns), bus_v)))


def test_the_example_of_the_data_sheet() -> None:
    """SBOS448G section 9.2.2.1: 10 A through 2 milliohm at 11.98 V."""
    chip = chip_with(0.020, 11.98)
    chip.write(Register.CONFIG, 0x019F, 0)
    chip.write(Register.CALIBRATION, 0x5000, 0)
    now = 2000 * US
    assert chip.read(Register.SHUNT, now) == 0x07D0
    assert chip.read(Register.BUS, now) & ~0x7 == 0x5D98
    assert chip.read(Register.CURRENT, now) == 0x2710
    assert chip.read(Register.POWER, now) == 0x1766


def test_nothing_is_there_before_the_first_conversion() -> None:
    chip = chip_with(0.1, 5.0)
    assert chip.read(Register.SHUNT, 1063 * US) == 0
    assert not chip.read(Register.BUS, 1063 * US) & BusBits.CNVR
    assert chip.read(Register.SHUNT, 1064 * US) == 10_000
    assert chip.read(Register.BUS, 1064 * US) & BusBits.CNVR


def test_reading_faster_than_it_converts_repeats_the_reading() -> None:
    level = {"v": 0.001}
    chip = Ina219Chip(lambda t_ns: (np.full(len(t_ns), level["v"]), np.full(len(t_ns), 5.0)))
    assert chip.read(Register.SHUNT, 1064 * US) == 100
    chip.read(Register.POWER, 1064 * US)
    level["v"] = 0.002
    assert chip.read(Register.SHUNT, 2127 * US) == 100
    assert not chip.read(Register.BUS, 2127 * US) & BusBits.CNVR  # that is how one can tell
    assert chip.read(Register.SHUNT, 2128 * US) == 200
    assert chip.read(Register.BUS, 2128 * US) & BusBits.CNVR


def test_averages_are_averages() -> None:
    """A ramp, averaged over 4 conversions of 532 us: the middle of them."""
    chip = Ina219Chip(lambda t_ns: (t_ns * 1e-9, np.full(len(t_ns), 5.0)))  # 1 V/s
    config = config_for_rate(0)
    assert (config.shunt_adc.samples, config.pair_us) == (4, 5 * 532)
    chip.write(Register.CONFIG, config.word(), 0)
    assert chip.read(Register.SHUNT, 2660 * US) == pytest.approx(2 * 532e-6 / 10e-6, abs=1)


@pytest.mark.parametrize(("bits", "code"), [(9, 0), (10, 1), (11, 2), (12, 3)])
def test_fewer_bits_are_coarser_and_faster(bits: int, code: int) -> None:
    chip = chip_with(0.0123456, 5.0123)
    chip.write(Register.CONFIG, 0x3807 | code << 7 | code << 3, 0)
    step = 1 << (12 - bits)
    shunt, bus = chip.read(Register.SHUNT, 10**9), chip.read(Register.BUS, 10**9) >> 3
    assert shunt % step == 0
    assert shunt == pytest.approx(1234.56, abs=step / 2)
    assert bus == pytest.approx(1253.1, abs=step / 2)


def test_overflow_is_flagged() -> None:
    chip = chip_with(0.3, 5.0)
    chip.write(Register.CALIBRATION, 8192, 0)
    assert chip.read(Register.BUS, 2000 * US) & BusBits.OVF
    chip.write(Register.CALIBRATION, 4096, 2000 * US)
    assert not chip.read(Register.BUS, 5000 * US) & BusBits.OVF


def test_a_reset_forgets_the_calibration() -> None:
    chip = chip_with(0.02, 5.0)
    chip.write(Register.CALIBRATION, 4096, 0)
    chip.write(Register.CONFIG, 0x019F, 0)
    assert chip.read(Register.CURRENT, 2000 * US) == 2000
    chip.power_on_reset(3000 * US)
    assert chip.read(Register.CALIBRATION, 3001 * US) == 0
    assert chip.read(Register.CONFIG, 3001 * US) == 0x399F
    assert chip.read(Register.CURRENT, 6000 * US) == 0
    assert chip.read(Register.SHUNT, 6000 * US) == 2000


def test_power_down_keeps_the_last_reading() -> None:
    chip = chip_with(0.02, 5.0)
    chip.read(Register.SHUNT, 2000 * US)
    chip.write(Register.CONFIG, 0x3998, 2000 * US)
    assert chip.ready_ns is None
    assert chip.read(Register.SHUNT, 10**9) == 2000


@pytest.mark.parametrize("rate_hz", [940, 627, 376, 209, 110, 57, 29, 15])
def test_every_averaging_can_be_asked_for_by_its_rate(rate_hz: float) -> None:
    assert 1e6 / config_for_rate(rate_hz).pair_us == pytest.approx(rate_hz, rel=0.03)


def test_a_library_nobody_here_wrote_reads_the_chip(peer_python: str) -> None:
    """adafruit-circuitpython-ina219: its set-ups, signs, limits, triggered mode, and its cure for resets."""
    script = REPOSITORY / "tests" / "peers" / "adafruit_ina219.py"
    done = subprocess.run(
        [peer_python, str(script), str(REPOSITORY)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["config"] == 0x399F
    limits_a = {"32V_2A": 3.2, "32V_1A": 1.6, "16V_400mA": 0.4, "16V_5A": 8.0}
    for name, limit_a in limits_a.items():
        for amperes in (0.25, -0.1, 5.0):
            reading = seen[f"{name} {amperes}"]
            expected_a = min(amperes, limit_a)
            assert reading["current_ma"] == pytest.approx(expected_a * 1e3, abs=0.5)
            assert reading["bus_v"] == pytest.approx(5.0, abs=0.004)
            assert reading["power_w"] == pytest.approx(abs(expected_a) * 5.0, abs=0.01)
    # Two averages of 128 conversions; the library asked every 1.2 ms.
    assert seen["triggered"]["waited_ms"] * 1.2 == pytest.approx(2 * 68.1, abs=2.5)
    assert seen["triggered"]["current_ma"] == pytest.approx(200, abs=0.1)
    assert seen["triggered once"]["current_ma"] == pytest.approx(200, abs=0.1)
    assert seen["after reset"] == {"config": 0x399F, "raw_current": 0, "raw_shunt": 3000}
    assert seen["recovered"]["current_ma"] == pytest.approx(300, abs=0.1)
