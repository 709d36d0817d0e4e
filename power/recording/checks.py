"""Checks that every recording goes through: what a reader of the samples must know becomes a finding.

All of them look at whole blocks and remember a handful of numbers between blocks, so a day-long
recording is checked in the same memory as a second. A driver sees more than these checks do (flags, the
converter's counts, so clipping is its to report); see `merge_findings` for what both report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from power.model import Finding, FindingLog, InstrumentInfo, SampleBlock, Severity
from power.timebase import QUARTZ_TOLERANCE_PPM, RATE_UNSURE_FACT, Timebase, clock_tolerance_ppm

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from power.meter import MeterConfig

FLAT_S = 2.0
"""Current and voltage both unchanged for this long. Thermal noise and a load's own regulator move a live
converter by a count within milliseconds; even an INA219 (100 uA and 4 mV steps, about 100 readings per
second when it averages) takes hundreds of equal pairs of readings to get here. A frozen register, a hung
converter or a synthetic load without noise does it at once."""

FLAT_SAMPLES = 100
"""And at least so many samples, so that an instrument with one reading per second is not suspected."""

RATE_OFFSET_PPM = 100.0
"""Quartz is within 100 ppm of its frequency over temperature and age; more is a resonator or another sample
rate than the one stated."""

RESONATOR_OFFSET_PPM = 5000.0
"""The same for a clock that is not known to be quartz: a ceramic resonator's 0.5 %."""

BEYOND_NS = 10e6
"""Reads that leave a clock's tolerance by less may have been held up by a busy host."""

RATE_JUDGED_S = 10.0
"""A shorter recording has fewer than some 100 reads, and the fit little but the nominal rate to go by."""

RATE_DRIFT_PPM = 50.0
"""AT-cut quartz moves by some 30 ppm over its whole temperature range; more while recording is no crystal."""

VOLTAGE_DEVIATION = 0.05
"""A 0.1 ohm shunt or lead drops 0.2 V of 4 V at 2 A; a supply that is further off is not the one set."""


class SampleChecks:
    """Feed it the blocks of one recording, then `finish` it.

    Args:
        info: The instrument; its stated accuracy decides what still is noise.
        config: The limits of the connected device; without it they are not checked.
    """

    def __init__(self, info: InstrumentInfo, config: MeterConfig | None = None) -> None:
        self._info = info
        self._config = config
        self._log = FindingLog()
        self._flat = _FlatRun(info, self._log)
        self._zero_a = max(part.floor_a for part in info.accuracy.current)
        self._last_tick: int | None = None

    def add(self, block: SampleBlock) -> None:
        """Look at the next block."""
        if not len(block):
            return
        self._check_loss(block)
        self._check_clock(block)
        self._check_current(block)
        if self._config is not None:
            self._check_limits(block, self._config)
        self._flat.add(block)

    def finish(self, timebase: Timebase) -> tuple[Finding, ...]:
        """All findings, now that the sample clock is known."""
        self._check_rate(timebase)
        return self._log.as_tuple()

    def _check_loss(self, block: SampleBlock) -> None:
        if block.dropped_before is None:
            self._log.add(
                "loss_unknown",
                Severity.INFO,
                "the instrument does not count lost samples",
                index=block.first_index,
            )
        elif block.dropped_before:
            self._log.add(
                "gap",
                Severity.WARNING,
                "samples were lost",
                index=block.first_index,
                count=block.dropped_before,
            )

    def _check_clock(self, block: SampleBlock) -> None:
        ticks = block.ticks
        backwards = np.zeros(len(ticks), bool)
        backwards[1:] = ticks[1:] <= ticks[:-1]
        backwards[0] = self._last_tick is not None and ticks[0] <= self._last_tick
        self._last_tick = int(ticks[-1])
        self._note(
            "clock_backwards", Severity.ERROR, "the instrument's clock did not advance", block, backwards
        )

    def _check_current(self, block: SampleBlock) -> None:
        self._note(
            "negative_current",
            Severity.WARNING,
            f"current below zero by more than the stated offset of {self._zero_a:g} A: "
            "is something feeding the output?",
            block,
            block.current_a < -self._zero_a,
        )

    def _check_limits(self, block: SampleBlock, config: MeterConfig) -> None:
        accuracy = self._info.accuracy
        self._note(
            "above_current_limit",
            Severity.ERROR,
            f"the device drew more than its current_limit_a of {config.current_limit_a:g} A",
            block,
            block.current_a > config.current_limit_a,
        )
        self._note(
            "supply_voltage",
            Severity.WARNING,
            f"the voltage is more than {VOLTAGE_DEVIATION:.0%} off the voltage_v of {config.voltage_v:g} V",
            block,
            np.abs(block.voltage_v - config.voltage_v) > VOLTAGE_DEVIATION * config.voltage_v,
        )
        margin_v = accuracy.voltage_gain_rel * config.voltage_max_v + accuracy.voltage_floor_v
        self._note(
            "over_voltage",
            Severity.ERROR,
            f"the voltage was above the voltage_max_v of {config.voltage_max_v:g} V",
            block,
            block.voltage_v > config.voltage_max_v + margin_v,
        )

    def _check_rate(self, timebase: Timebase) -> None:
        offset_ppm, unsure_ppm = rate_offset_ppm(timebase, self._info)
        # Beyond its tolerance the fit does not follow a clock. How far the reads are off then says nothing
        # about the link, so it must not excuse the clock.
        if timebase.beyond_ns > BEYOND_NS and _is_judged(timebase):
            self._log.add(
                "rate_offset",
                Severity.ERROR,
                f"the sample clock is more than {clock_tolerance_ppm(self._info):g} ppm off its nominal rate,"
                " or lost samples were not counted: sample times are off by some"
                f" {timebase.beyond_ns * 1e-9:.2g} s",
            )
        elif abs(offset_ppm) - unsure_ppm > rate_limit_ppm(self._info):
            self._log.add(
                "rate_offset",
                Severity.WARNING,
                f"the sample clock is {offset_ppm:+.0f} ppm off its nominal rate",
            )
        if abs(timebase.drift_ppm) > RATE_DRIFT_PPM:
            self._log.add(
                "rate_drift",
                Severity.WARNING,
                f"the sample clock changed by {timebase.drift_ppm:+.0f} ppm while recording",
            )

    def _note(
        self, code: str, severity: Severity, message: str, block: SampleBlock, mask: NDArray[np.bool_]
    ) -> None:
        self._log.add_each(code, severity, message, block.first_index + np.flatnonzero(mask))


class _FlatRun:
    """Notes each stretch of equal readings that is longer than plausible, once."""

    def __init__(self, info: InstrumentInfo, log: FindingLog) -> None:
        self._limit = max(FLAT_SAMPLES, round(FLAT_S * info.rate_hz))
        self._log = log
        self._reading: tuple[Any, Any] | None = None
        self._start_index = 0
        self._length = 0

    def add(self, block: SampleBlock) -> None:
        current, voltage = block.current_a, block.voltage_v
        changed = np.empty(len(block), bool)
        changed[1:] = (current[1:] != current[:-1]) | (voltage[1:] != voltage[:-1])
        changed[0] = self._reading != (current[0], voltage[0])
        starts = np.flatnonzero(changed)
        lengths = np.diff(starts, append=len(block))
        carried = int(starts[0]) if len(starts) else len(block)
        if carried:
            self._extend(carried)
        for i in np.flatnonzero(lengths > self._limit):
            self._note(block.first_index + int(starts[i]))
        if len(starts):
            self._start_index = block.first_index + int(starts[-1])
            self._length = int(lengths[-1])
        self._reading = (current[-1], voltage[-1])

    def _extend(self, samples: int) -> None:
        if self._length <= self._limit < self._length + samples:
            self._note(self._start_index)
        self._length += samples

    def _note(self, index: int) -> None:
        self._log.add(
            "flat_line",
            Severity.WARNING,
            f"current and voltage did not change at all for more than {FLAT_S:g} s",
            index=index,
        )


def rate_offset_ppm(timebase: Timebase, info: InstrumentInfo) -> tuple[float, float]:
    """How far the sample clock is off its nominal rate, and how much of that a slow link may explain."""
    unsure_ppm = timebase.residual_ns / (timebase.host_ns[-1] - timebase.host_ns[0]) * 1e6
    if not _is_judged(timebase):
        unsure_ppm = max(unsure_ppm, clock_tolerance_ppm(info))
    return (timebase.tick_hz / info.tick_hz - 1.0) * 1e6, unsure_ppm


def rate_limit_ppm(info: InstrumentInfo) -> float:
    """How far off its nominal rate the clock of an instrument may be before a finding says so."""
    unsure_ppm = float(info.facts.get(RATE_UNSURE_FACT, 0.0))
    is_quartz = clock_tolerance_ppm(info) <= QUARTZ_TOLERANCE_PPM + unsure_ppm
    return unsure_ppm + (RATE_OFFSET_PPM if is_quartz else RESONATOR_OFFSET_PPM)


def _is_judged(timebase: Timebase) -> bool:
    return timebase.host_ns[-1] - timebase.host_ns[0] >= RATE_JUDGED_S * 1e9


def finite_rows(block: SampleBlock) -> int:
    """How many samples come before the first that is not a number or infinite."""
    bad = ~(np.isfinite(block.current_a) & np.isfinite(block.voltage_v))
    return int(np.argmax(bad)) if bad.any() else len(block)


def merge_findings(of_meter: tuple[Finding, ...], of_checks: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Both, without what the checks found again: the meter knows more about it.

    An error goes only if the meter says the very same: a replay, for one, may be checked against other
    limits than those stored with its recording.
    """
    known = {finding.code for finding in of_meter}
    said = {(finding.code, finding.message) for finding in of_meter}

    def is_new(finding: Finding) -> bool:
        if finding.severity is Severity.ERROR:
            return (finding.code, finding.message) not in said
        return finding.code not in known

    return (*of_meter, *filter(is_new, of_checks))
