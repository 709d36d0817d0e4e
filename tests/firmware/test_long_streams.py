"""Minutes of the vendor's firmware in simulated time, through our decoder, clock fit and checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from power.meter import MeterConfig, open_meter
from power.meters import monsoon_hvpm, monsoon_lvpm
from power.model import Finding, InstrumentInfo, SampleBlock, Severity
from power.recording.checks import SampleChecks
from power.timebase import TimebaseFitter, clock_tolerance_ppm
from power.wire.decoder import Decoder
from tests.firmware.bridge import HvpmOnUsb, LvpmOnPty
from tests.firmware.frames import PREPARE, START, frame
from tests.firmware.images import HVPM
from tests.firmware.monsoon import Hvpm, Load, Lvpm
from tests.priority import in_real_time

LIMITS = {"voltage_v": 4.0, "voltage_max_v": 4.3, "current_limit_a": 5.0}
LOAD = Load(0.25, 4.0)
PORTION_S = 0.05


def opened(kind: str, port: str) -> tuple[InstrumentInfo, MeterConfig]:
    """What the driver makes of the unit, its output at 4 V."""
    config = MeterConfig.model_validate({"kind": kind, "port": port, **LIMITS})
    with open_meter(config) as meter:
        meter.set_voltage(4.0)  # type: ignore[attr-defined]
        return meter.info, config


def judged(
    reads: Iterable[tuple[float, bytes]], decoder: Decoder, info: InstrumentInfo, config: MeterConfig
) -> tuple[tuple[Finding, ...], float, float, int]:
    """Findings, mean current and voltage, and the number of samples."""
    fitter = TimebaseFitter(info.tick_hz, tolerance_ppm=clock_tolerance_ppm(info))
    checks = SampleChecks(info, config)
    amperes, volts, samples, portion, due_s = 0.0, 0.0, 0, b"", 0.0
    for t_s, data in reads:
        portion += data
        if t_s < due_s:
            continue
        due_s, arrival_ns = t_s + PORTION_S, round(t_s * 1e9)
        for part in decoder.feed(portion, arrival_ns):
            fitter.add(int(part.ticks[-1]), arrival_ns)
            t_ns = fitter.fit().to_host_ns(part.ticks)
            checks.add(
                SampleBlock(
                    t_ns, part.ticks, part.current_a, part.voltage_v, part.first_index, part.dropped_before
                )
            )
            amperes, volts = amperes + float(np.sum(part.current_a)), volts + float(np.sum(part.voltage_v))
            samples += len(part.ticks)
        portion = b""
    findings = (*decoder.findings, *checks.finish(fitter.fit()))
    return findings, amperes / samples, volts / samples, samples


def assert_nothing_to_remark(result: tuple[tuple[Finding, ...], float, float, int], expected: float) -> None:
    findings, current_a, voltage_v, samples = result
    # The load is constant to the last bit, which is remarkable in itself.
    assert {f.code for f in findings if f.severity is not Severity.INFO} <= {"flat_line"}
    assert current_a == pytest.approx(0.25, abs=2e-4)
    assert voltage_v == pytest.approx(4.0, abs=5e-4)
    assert samples == pytest.approx(expected, rel=0.01)  # the last portion is left out


@pytest.mark.campaign
def test_lvpm_stream(images: Path, campaign_count: Callable[[int, int], int]) -> None:
    seconds = campaign_count(10, 600)
    unit = Lvpm(images, LOAD)
    with in_real_time(), LvpmOnPty(unit) as bridge:
        info, config = opened("monsoon-lvpm", bridge.path)
    unit.write(frame(PREPARE))
    list(unit.read(0.02))
    unit.write(frame(START))
    result = judged(unit.read(seconds), monsoon_lvpm.decoder_for(info), info, config)
    assert_nothing_to_remark(result, (seconds - 0.212) * 5000)


@pytest.mark.campaign
def test_hvpm_stream(images: Path, campaign_count: Callable[[int, int], int]) -> None:
    seconds = campaign_count(10, 600)
    unit = Hvpm(images, HVPM[32], LOAD)
    with in_real_time(), HvpmOnUsb(unit) as bridge:
        info, config = opened("monsoon-hvpm", bridge.address)
    unit.start()
    result = judged(unit.read(seconds), monsoon_hvpm.decoder_for(info), info, config)
    assert_nothing_to_remark(result, seconds * info.rate_hz)
