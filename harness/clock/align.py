"""Bringing a device's clock to a recording's: the best method that passes its tests, and why others did not.

The ladder: edges on a wire, bursts of load in the power trace, exchanges over the link. A method that fails
its tests is not used, and a finding says so. The exchanges are the prior of everything above them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from device_agents import Ping
from harness.clock.bursts import fit_bursts
from harness.clock.line import METER_TIMING_S, Line, allowed
from harness.clock.offsets import GpioEdge, fit_edges, fit_pings, ping_line
from harness.clock.pattern import BurstRun
from harness.evidence.clock_fit import BurstSeen, ClockFit
from joulefleet.errors import DataQualityError
from power import Finding, FindingLog, Severity
from power.recording import Recording

MAX_DISAGREEMENT_S = 0.1
"""A pattern and exchanges that differ by more than they can, but less than this (two bits of the default
pattern), leave it open which of them is right: the difference is the uncertainty. Beyond, no delay of a link
or a meter explains it, and there is no alignment."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """A clock fit with what speaks for it.

    Attributes:
        fit: The best that passed its tests.
        findings: What a reader must know.
        bursts: Every pattern, in the order of time.
        pings: The fit from exchanges alone, to compare.
    """

    fit: ClockFit
    findings: tuple[Finding, ...]
    bursts: tuple[BurstSeen, ...]
    pings: ClockFit


def align(
    recording: Recording,
    pings: Sequence[Ping],
    bursts: Sequence[BurstRun],
    *,
    edges: Sequence[GpioEdge] = (),
) -> Alignment:
    """Fit a device's clock to a recording's.

    Args:
        recording: Of the power, from before the first pattern until after the last.
        pings: Exchanges, best some before the work and some after it.
        bursts: Patterns that the device played, see `harness.clock.burst_runs`.
        edges: Seen on a wire, where there is one.

    Raises:
        DataQualityError: There is no exchange, the exchanges contradict each other, or the patterns are
            plain to see where no exchange allows them to be.
    """
    alone = fit_pings(pings, also_ns=[run.middle_ns for run in bursts])
    prior = ping_line(pings)
    log = FindingLog()
    wire = _by_wire(recording, prior, edges, log)
    pattern = fit_bursts(recording, prior, bursts)
    for burst in pattern.seen:
        if burst.refused:
            message = f"the pattern {burst.when} the work was not used: {burst.refused}"
            log.add("clock_pattern_refused", Severity.WARNING, message)
    if wire is None and abs(pattern.contradiction_s) > MAX_DISAGREEMENT_S:
        raise DataQualityError(
            f"the pattern in the power trace lies {pattern.contradiction_s:+.3g} s from where the exchanges "
            "put it",
            hint="check that the meter is on this device, and that the device's clock is not being stepped",
        )
    unsure_s = math.hypot(alone.sync_uncertainty_s, _meter_delay_s(recording), pattern.contradiction_s)
    ping = alone.model_copy(update={"sync_uncertainty_s": unsure_s})
    return Alignment(wire or _better(pattern.fit, ping, log), log.as_tuple(), pattern.seen, ping)


def _better(pattern: ClockFit | None, ping: ClockFit, log: FindingLog) -> ClockFit:
    """The pattern, unless there is none or the exchanges place the clock better."""
    if pattern is None:
        return ping
    pattern = _with_disagreement(pattern, ping)
    if pattern.sync_uncertainty_s <= ping.sync_uncertainty_s:
        return pattern
    log.add(
        "clock_pattern_coarse",
        Severity.INFO,
        f"the exchanges place the clock better ({ping.sync_uncertainty_s * 1e3:.2g} ms) than the pattern in "
        f"the power trace does ({pattern.sync_uncertainty_s * 1e3:.2g} ms)",
    )
    return ping


def _with_disagreement(pattern: ClockFit, ping: ClockFit) -> ClockFit:
    """Where two methods differ by more than they admit, neither is as good as it says (Birge ratio)."""
    differ_s = abs(pattern.offset_ns + pattern.reference_ns - ping.to_host_ns(pattern.reference_ns)) * 1e-9
    ratio = differ_s / math.hypot(pattern.sync_uncertainty_s, ping.sync_uncertainty_s)
    return pattern.model_copy(update={"sync_uncertainty_s": pattern.sync_uncertainty_s * max(1.0, ratio)})


def _by_wire(
    recording: Recording, prior: Line, edges: Sequence[GpioEdge], log: FindingLog
) -> ClockFit | None:
    """The fit through edges on a wire, if there are any and they agree with the exchanges."""
    if not edges:
        return None
    period_s = 1.0 / recording.record.info.rate_hz
    try:
        fit = fit_edges(edges, period_s=period_s)
    except DataQualityError as error:
        log.add("clock_gpio_refused", Severity.WARNING, error.message)
        return None
    off_s = (fit.offset_ns - prior.offset_at(fit.reference_ns)) * 1e-9
    if not allowed(off_s, prior, fit.reference_ns, period_s):
        log.add(
            "clock_gpio_refused",
            Severity.WARNING,
            f"the edges on the wire put the clock {off_s:+.3g} s from where the exchanges do",
        )
        return None
    return fit


def _meter_delay_s(recording: Recording) -> float:
    """How late the recording may be: reads over a slow link are late by more than its least delay."""
    record = recording.record
    typical_s = record.timebase.residual_ns * 1e-9 + 1.0 / record.info.rate_hz
    return min(METER_TIMING_S, typical_s) / math.sqrt(3.0)
