"""Whether what a job left behind can become numbers, before it counts as finished."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from device_agents import BackgroundLoad, Job, JobRecord
from device_agents.protocol import EpochMarker, JobEnd, Phase, SourceLost, Sources
from harness.evidence.capture import HostWindow
from harness.evidence.clock_fit import ClockFit
from joulefleet.errors import DataQualityError, DeviceProtocolError
from power import Finding, FindingLog, Severity, Window
from power.energy import DEFAULT_POLICY, EnergyIndex, measure_baseline
from power.recording import Recording

MEASURE_AGAIN = "it is measured again while attempts are left; see the findings of its recording"


_MEASURED = (Phase.LOAD, Phase.EPOCH, Phase.WAIT)


def require_phases(markers: Sequence[EpochMarker], epochs: int, *, stopped: bool = False) -> None:
    """Every epoch began and ended, and so did both transfers; up to the decision, if it was to stop.

    Raises:
        DataQualityError: One did not.
    """
    edges = {(m.kind, m.epoch, m.edge) for m in markers}
    wanted = [(Phase.EPOCH, epoch) for epoch in range(1, (1 if stopped else epochs) + 1)]
    wanted += [(Phase.DOWNLOAD, 0), (Phase.WAIT, 0)]
    wanted += [] if stopped else [(Phase.UPLOAD, 0)]
    for kind, epoch in wanted:
        if not {(kind, epoch, "start"), (kind, epoch, "end")} <= edges:
            what = f"epoch {epoch}" if epoch else f"phase {kind.value}"
            raise DataQualityError(f"{what} has no start or no end", hint=MEASURE_AGAIN)


def require_power(
    recording: Recording, markers: Sequence[EpochMarker], clock: ClockFit, idle: Sequence[HostWindow]
) -> None:
    """Everything that numbers are made of has an energy under the policy on gaps, or is a baseline.

    Raises:
        DataQualityError: Some phase has no energy, or no net or marginal energy could be made; says why.
        DeviceProtocolError: The device's markers do not belong together.
    """
    phases = _measured_windows(markers, clock)
    baseline = [Window(w.start_ns, w.end_ns, "idle") for w in idle]
    windows = [*baseline, *(window for _, window in phases)]
    for window, energy in zip(
        windows, EnergyIndex(recording, DEFAULT_POLICY).integrate(windows), strict=True
    ):
        if not energy.valid:
            raise DataQualityError(f"{window.label}: {'; '.join(energy.problems)}", hint=MEASURE_AGAIN)
    measure_baseline(recording, *baseline[:2])
    for kind, window in phases:
        if kind is Phase.LOAD:
            measure_baseline(recording, window)


def _measured_windows(markers: Sequence[EpochMarker], clock: ClockFit) -> list[tuple[Phase, Window]]:
    """The phases whose energy counts, in host time."""
    found = []
    began: dict[tuple[Phase, int], int] = {}
    for marker in markers:
        if marker.kind not in _MEASURED:
            continue
        host_ns = clock.to_host_ns(marker.t_dev_ns)
        key = marker.kind, marker.epoch
        if marker.edge == "start":
            began[key] = host_ns
            continue
        label = f"{marker.kind.value} {marker.epoch}" if marker.epoch else marker.kind.value
        if key not in began:
            raise DeviceProtocolError(f"{label} ended without having begun, says the device")
        found.append((marker.kind, Window(began.pop(key), host_ns, label)))
    return found


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
    if end is not None and end.suspended_ns:
        slept = f"the device slept for {end.suspended_ns * 1e-9:.3g} s during the round"
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
