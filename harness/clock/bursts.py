"""Patterns in a power trace: found, tested, fitted together; what became of each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.clock.correlate import Peak, Trace, find_peak, read_trace
from harness.clock.line import (
    MAX_SKEW_PPM,
    METER_TIMING_S,
    PRIOR_SD,
    SKEW_SD_PPM,
    Line,
    allowed,
    fit_line,
)
from harness.clock.pattern import BurstRun
from harness.clock.refine import Refined, refine
from harness.evidence.clock_fit import BurstSeen, ClockFit
from power.recording import Recording

PEAK_BITS = 0.6
"""How far the peak of a correlation may be off the offset, which depends on the regulator."""

MIN_PEAK_TO_SIDELOBE = 1.7
"""A lesser peak may be chance, or one of two equal patterns. Over 120 synthetic traces with background bursts
(tests/harness/clock_trials.py) it was above 3.1 in 99 % with the pattern, below 1.8 in 99 % without."""

MAX_CHANCE = 1e-4
"""Of so many edges going the right way: 27 of the default pattern's 32. In the same traces it was 29 at least
with the pattern, 26 at most without. Patterns of less than 31 bits have too few edges to get there."""

MAX_RESIDUAL_SD = 5.0
"""Standard uncertainties by which one of several patterns may lie off the line through all."""

VALUES_PER_BIT = 50


@dataclass(frozen=True, slots=True)
class PatternFit:
    """What the patterns say.

    Attributes:
        seen: Every pattern, in the order of time.
        fit: From those that passed their tests; None if none did.
        contradiction_s: How far a pattern that is plain to see lies from where the exchanges put it, if that
            is further than it can and there is no fit; 0 otherwise.
    """

    seen: tuple[BurstSeen, ...]
    fit: ClockFit | None
    contradiction_s: float


def fit_bursts(recording: Recording, prior: Line, bursts: Sequence[BurstRun]) -> PatternFit:
    """Look for every pattern, then fit all that were found together."""
    search = [_seek(recording, prior, run) for run in sorted(bursts, key=lambda run: run.start_ns)]
    good = [found for found in search if not found.seen.refused]
    fit = None
    if good:
        judged, fit = _joint(good, prior, [found.run.middle_ns for found in search])
        by_start = {found.run.start_ns: found for found in judged}
        search = [by_start.get(found.run.start_ns, found) for found in search]
    off_s = [found.seen.from_pings_s or 0.0 for found in search if found.elsewhere and fit is None]
    return PatternFit(tuple(found.seen for found in search), fit, max(off_s, key=abs, default=0.0))


@dataclass(frozen=True, slots=True)
class _Found:
    """A pattern and the trace it was looked for in; ``elsewhere``: seen clearly, at an impossible time."""

    run: BurstRun
    seen: BurstSeen
    trace: Trace
    lag_s: float = 0.0
    elsewhere: bool = False


def _seek(recording: Recording, prior: Line, run: BurstRun) -> _Found:
    """Look for a pattern well around the place where the exchanges put it, and judge what is found."""
    around_s = max(run.duration_s / 2, 2 * (PRIOR_SD * prior.standard_s(run.middle_ns) + METER_TIMING_S))
    around_ns = round(around_s * 1e9)
    expected_ns = run.start_ns + prior.offset_at(run.middle_ns)
    end_ns = expected_ns + run.pattern.duration_ns + around_ns
    trace = read_trace(recording, expected_ns - around_ns, end_ns, width_s=run.bit_s / VALUES_PER_BIT)
    seen = BurstSeen(when=run.when, start_ns=run.start_ns)
    peak = find_peak(trace, run)
    if peak is None:
        return _Found(run, seen.but(refused="too little of it was recorded"), trace)
    off_s = peak.lag_s - around_s
    seen = seen.but(
        correlation=peak.correlation,
        peak_to_sidelobe=peak.peak_to_sidelobe,
        right_edges=peak.right_edges,
        edges=peak.edges,
        from_pings_s=off_s,
    )
    why = _unsure(peak)
    if why:
        return _Found(run, seen.but(refused=why), trace)
    if not allowed(off_s, prior, run.middle_ns, PEAK_BITS * run.bit_s):
        return _Found(run, seen.but(refused=_misplaced(off_s)), trace, elsewhere=True)
    return _Found(run, seen, trace, peak.lag_s)


def _unsure(peak: Peak) -> str:
    """Why a match may be chance, or one of several; empty if it is neither."""
    if 0.5**peak.edges > MAX_CHANCE:
        return f"{peak.edges} edges are too few to be told from chance (order 5 has enough)"
    if peak.peak_to_sidelobe < MIN_PEAK_TO_SIDELOBE:
        return (
            f"its best match is only {peak.peak_to_sidelobe:.2f} times as good as the next "
            f"({MIN_PEAK_TO_SIDELOBE:g} needed)"
        )
    if peak.by_chance > MAX_CHANCE:
        return f"only {peak.right_edges} of {peak.edges} edges go the right way"
    return ""


def _joint(
    good: Sequence[_Found], prior: Line, span_ns: Sequence[int]
) -> tuple[list[_Found], ClockFit | None]:
    """One fit to all patterns that were found, unless it must not be used; and what became of each."""
    runs = [found.run for found in good]
    refined = refine([found.trace for found in good], runs, [found.lag_s for found in good])
    offsets_ns = [
        found.trace.origin_ns - found.run.start_ns + round(at * 1e9)
        for found, at in zip(good, refined.offset_s.tolist(), strict=True)
    ]
    skew = (prior.skew_ppm, min(SKEW_SD_PPM, math.sqrt(prior.covariance[1, 1]) * 1e6))
    line = fit_line([run.middle_ns for run in runs], offsets_ns, refined.covariance_s2, skew=skew)
    doubts = _doubts(refined, line)
    judged = [
        replace(found, seen=_measured(found, offsets_ns[i], i, refined, line, prior))
        for i, found in enumerate(good)
    ]
    if not doubts:
        judged = [_judge(found, prior) for found in judged]
    why = doubts or next((found.seen.refused for found in judged if found.seen.refused), "")
    if why:
        return [replace(found, seen=found.seen.but(refused=why)) for found in judged], None
    # Edges that the device did not time may all be late, as much as they scatter.
    late_s = 0.0 if all(run.late_ns for run in runs) else refined.jitter_s
    # Where in its period a single sample was taken, only the meter's maker knows.
    sample_s = max(0.0 if found.trace.averaged else found.trace.width_s for found in good) / math.sqrt(12)
    fit = line.fit(
        "pattern",
        span_ns,
        residual_s=math.sqrt(sum((found.seen.residual_s or 0.0) ** 2 for found in judged) / len(judged)),
        further_s=math.hypot(late_s, sample_s),
        tau_s=refined.tau_s,
    )
    return judged, fit


def _measured(
    found: _Found, offset_ns: int, number: int, refined: Refined, line: Line, prior: Line
) -> BurstSeen:
    """A pattern with its offset."""
    middle_ns = found.run.middle_ns
    return found.seen.but(
        offset_ns=offset_ns,
        standard_s=math.sqrt(refined.covariance_s2[number, number]),
        step_w=refined.step_w[number],
        from_pings_s=(offset_ns - prior.offset_at(middle_ns)) * 1e-9,
        residual_s=(offset_ns - line.offset_at(middle_ns)) * 1e-9,
    )


def _judge(found: _Found, prior: Line) -> _Found:
    """A pattern that has its offset, against the exchanges and against the line through all."""
    seen = found.seen
    off_s, residual_s, standard_s = (x or 0.0 for x in (seen.from_pings_s, seen.residual_s, seen.standard_s))
    if not allowed(off_s, prior, found.run.middle_ns, PRIOR_SD * standard_s):
        return replace(found, seen=seen.but(refused=_misplaced(off_s)), elsewhere=True)
    if abs(residual_s) > MAX_RESIDUAL_SD * standard_s:
        why = f"one of the patterns lies {residual_s:+.3g} s off the line through all"
        return replace(found, seen=seen.but(refused=why))
    return found


def _misplaced(off_s: float) -> str:
    return f"it lies {off_s:+.3g} s from where the exchanges put it"


def _doubts(refined: Refined, line: Line) -> str:
    """Why the patterns together must not be used; empty if they may."""
    if refined.at_limit:
        return "the lag of the supply is too long to be told from the clock's offset"
    if abs(line.skew_ppm) > MAX_SKEW_PPM:
        return f"the patterns would need a skew of {line.skew_ppm:+.0f} ppm"
    return ""
