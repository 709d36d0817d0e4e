"""Whether what a job left behind can become numbers, before it counts as finished."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from device_agents import BackgroundLoad, Job, JobRecord
from device_agents.protocol import JobEnd, Phase, SourceLost, Sources
from harness.evidence.capture import HostWindow, Phased
from harness.evidence.claims import contradicted
from harness.evidence.unaccounted import Unaccounted
from joulefleet.errors import DataQualityError
from joulefleet.interval import NORMAL_95
from power import Finding, FindingLog, Severity, Window
from power.energy import DEFAULT_POLICY, Baseline, EnergyIndex, WindowEnergy, measure_baseline
from power.recording import Recording

MEASURE_AGAIN = "it is measured again while attempts are left; see the findings of its recording"


_MEASURED = (Phase.LOAD, Phase.EPOCH, Phase.WAIT)

SLEPT_S = 0.05
"""A device that slept has stopped its tasks and resumed them, which takes longer. Less is what two clocks
differ by that are read one after the other. A sleep that no marker and no message shows would also break the
line through the clock exchanges, however short it is (`harness.clock.offsets`)."""

LEFT_SHARE, LEFT_S = 0.05, 0.1
"""From here on a reader is told of time that no marker accounts for: share of the epochs, and seconds."""

LEAST_RISE = 0.01
"""Of the power without training. Less is no rise: a processor at work draws tens of percent more."""

MOST_LEFT_SHARE, MOST_LEFT_S = 0.5, 1.0
"""Beyond, nobody knows what the device did most of the time: share of the time between two messages."""


def require_power(
    recording: Recording, phases: Sequence[Phased], idle: Sequence[HostWindow]
) -> tuple[Finding, ...]:
    """Everything that numbers are made of has an energy under the policy on gaps, or is a baseline.

    Returns:
        A finding if the trace does not show the training. It is no error: a supply may hide it.

    Raises:
        DataQualityError: Some phase has no energy, or no net or marginal energy could be made; says why.
    """
    measured = [phase for phase in phases if phase.phase in _MEASURED]
    idle_windows = [Window(w.start_ns, w.end_ns, "idle") for w in idle]
    windows = [*idle_windows, *map(_window, measured)]
    energies = EnergyIndex(recording, DEFAULT_POLICY).integrate(windows)
    for window, energy in zip(windows, energies, strict=True):
        if not energy.valid:
            raise DataQualityError(f"{window.label}: {'; '.join(energy.problems)}", hint=MEASURE_AGAIN)
    baseline = measure_baseline(recording, *idle_windows[:2])
    for phase in measured:
        if phase.phase is Phase.LOAD:
            baseline = measure_baseline(recording, _window(phase))
    of_phases = zip(measured, energies[len(idle_windows) :], strict=True)
    return _training_seen([energy for phase, energy in of_phases if phase.phase is Phase.EPOCH], baseline)


def _window(phase: Phased) -> Window:
    label = f"{phase.phase.value} {phase.epoch}" if phase.epoch else phase.phase.value
    return Window(phase.start_ns, phase.end_ns, label)


def _training_seen(epochs: Sequence[WindowEnergy], baseline: Baseline) -> tuple[Finding, ...]:
    """Whether epochs draw more than what was there without them, by more than that is known."""
    duration_s = math.fsum(epoch.duration_s for epoch in epochs)
    power_w = math.fsum(epoch.energy_j or 0.0 for epoch in epochs) / duration_s
    rest_w = baseline.power_at((epochs[0].start_ns + epochs[-1].end_ns) // 2)
    unsure_w = NORMAL_95 * math.sqrt(baseline.idle_variance(epochs).w2)
    if power_w - rest_w > max(unsure_w, LEAST_RISE * rest_w):
        return ()
    message = f"the power trace shows no training: {power_w:.3g} W in the epochs, {rest_w:.3g} W without"
    return (Finding(code="training_not_seen", severity=Severity.WARNING, message=message),)


def require_accounted(recording: Recording, left: Sequence[Unaccounted]) -> tuple[Finding, ...]:
    """The markers of epochs account for most of the time that the host gave them.

    Returns:
        A finding for what is left over, which widens the intervals of these epochs.

    Raises:
        DataQualityError: Most of it is left over.
    """
    log = FindingLog()
    for part in left:
        epochs = f"epoch {part.epochs[0]}" + (f" to {part.epochs[-1]}" if len(part.epochs) > 1 else "")
        if part.seconds > max(MOST_LEFT_S, MOST_LEFT_SHARE * part.passed_s):
            raise contradicted(
                f"this host's clock: {epochs} took {part.trained_s:.3g} s by its markers, and nothing "
                f"accounts for {part.seconds:.3g} s of the {part.passed_s:.3g} s between two messages"
            )
        if part.seconds > max(LEFT_S, LEFT_SHARE * part.trained_s):
            message = (
                f"no marker accounts for {part.seconds:.3g} s beside {epochs} ({part.trained_s:.3g} s)"
                f"{_power_in(recording, part)}: the interval is that much wider"
            )
            log.add("time_unaccounted", Severity.WARNING, message)
        if part.disguised_s > max(LEFT_S, LEFT_SHARE * part.trained_s):
            message = (
                f"epoch 1 ({part.trained_s:.3g} s) is {part.disguised_s:.3g} s shorter than the later ones, "
                "and before it the device drew enough to train that long: the interval is that much wider"
            )
            log.add("first_epoch_short", Severity.WARNING, message)
    return log.as_tuple()


def _power_in(recording: Recording, part: Unaccounted) -> str:
    """What the device drew meanwhile, if it is known."""
    energies = EnergyIndex(recording, DEFAULT_POLICY).integrate([Window(*gap) for gap in part.gaps])
    known = [energy for energy in energies if energy.valid and energy.duration_s]
    if not known:
        return ""
    seconds = math.fsum(energy.duration_s for energy in known)
    return f", in which it drew {math.fsum(energy.energy_j or 0.0 for energy in known) / seconds:.3g} W"


def require_load(end: JobEnd | None, load: BackgroundLoad | None) -> None:
    """The background load was there to the end: each of its workers has told what it used.

    Raises:
        DataQualityError: One did not, so it had died before, and nobody knows when.
    """
    if load is None:
        return
    report = end.background if end is not None else None
    if report is None:
        raise DataQualityError("the background load has left no report", hint=MEASURE_AGAIN)
    if report.workers != load.cores:
        lost = load.cores - report.workers
        raise DataQualityError(
            f"{lost} of {load.cores} workers of the background load died during the round", hint=MEASURE_AGAIN
        )


def device_findings(record: JobRecord, order: Job) -> tuple[Finding, ...]:
    """What the device noticed, or could not notice, that a reader of the numbers must know."""
    log = FindingLog()
    for code, message in _unwatched(record, order):
        log.add(code, Severity.WARNING, message)
    end = record.end
    slept_s = (end.suspended_ns or 0) * 1e-9 if end is not None else 0.0
    if slept_s >= SLEPT_S:
        slept = f"the device slept for {slept_s:.3g} s during the round"
        log.add("device_suspended", Severity.WARNING, slept)
    if end is not None and end.problems:
        said = "; ".join(end.problems)[:500]
        log.add("device_problem", Severity.WARNING, said, count=len(end.problems))
    return log.as_tuple()


def _unwatched(record: JobRecord, order: Job) -> Iterator[tuple[str, str]]:
    """Limits that the device had no sensor for, or one that did not answer all the time."""
    columns = {name for sources in record.telemetry_of(Sources) for name in sources.columns}
    lost = {source.column for source in record.telemetry_of(SourceLost)}
    limits = (
        ("temperature_c", order.temperature_max_c, "temperature"),
        ("battery_level", order.battery_min_level, "battery level"),
    )
    for column, limit, what in limits:
        if limit is None or (column in columns and column not in lost):
            continue
        if column in lost:
            message = f"the {what} could not always be read: its limit of {limit:g} was not always watched"
        else:
            message = f"the device shows no {what}: its limit of {limit:g} was not watched"
        yield f"unwatched_{column}", message
