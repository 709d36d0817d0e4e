"""What a device says of a job, held against the protocol, its other words and the host's own clock.

A marker is a claim. What the host knows by itself is when it sent something and when something was here: what
a device did with an answer it did after the answer left, what it told it had done before. Markers that do not
fit between these times, within what is known of the clock, are no evidence (class 2 of SECURITY.md). What a
device did between two messages only the device knows: see `harness.evidence.unaccounted`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Literal

from device_agents import Job, JobRecord, JobResult
from device_agents.protocol import EpochMarker, JobEnd, Phase, ProbeReport
from harness.evidence.clock_fit import ClockFit
from joulefleet.errors import DataQualityError

Edge = tuple[Phase, int, Literal["start", "end"]]
Step = Edge | str
"""An edge of a phase, or the name of an exchange with the host."""

TOLERANCE_SD = 3.0
"""Standard uncertainties of the clock fit; 1.7 are half of a round trip, which bounds it."""

READING_S = 1e-3
"""Between stamping a marker and doing what it stands for, a thread may lose its processor for a tick."""

WANDER_PPM = 5.0
"""A quartz that warms up under load leaves the straight line between two exchanges by some parts per million
of the time between them."""

CORES_HIDDEN = 2.0
"""Phones switch cores off: a device may use this many times the processors that it had when it was asked."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Everything that a device said of one job.

    Attributes:
        order: What it was told to do.
        result: What came back during the job, and when.
        record: What was collected from the device afterwards.
        cpus: Processors that it says it has.
    """

    order: Job
    result: JobResult
    record: JobRecord
    cpus: int | None

    @property
    def markers(self) -> tuple[EpochMarker, ...]:
        """Those that the capture is made of."""
        return self.result.markers


def require_consistent(claims: Claims) -> None:
    """The device did what the protocol asks for, in its order, and all that it says agrees.

    Raises:
        DataQualityError: Says what does not.
    """
    for why in _contradictions(claims):
        raise contradicted(why)


def require_in_time(claims: Claims, clock: ClockFit) -> None:
    """Every marker lies between the host's own times for it.

    Args:
        claims: Of a job that is consistent.
        clock: From exchanges of clocks alone, which nothing but the host and the device are part of.

    Raises:
        DataQualityError: One does not.
    """
    for why in _impossible(claims, clock):
        raise contradicted(why)


def contradicted(why: str) -> DataQualityError:
    """The error for a claim that cannot be true."""
    return DataQualityError(
        f"the device contradicts {why}",
        hint="is the agent on the device the one that was sent, and is its clock left alone while it works? "
        "What it said is kept with the failed attempt",
    )


def steps_of(order: Job, exchanges: Sequence[str], *, stopped: bool) -> list[Step]:
    """The edges and exchanges of a job that did what it was told, in the order of the protocol."""
    asked = [what for what in exchanges if what not in ("model", "probe", "result")]
    sync = [(Phase.SYNC, 0, ())] * (order.sync is not None)
    later = [(Phase.EPOCH, epoch, ()) for epoch in range(2, order.epochs + 1)]
    upload = [(Phase.UPLOAD, 0, ["result"])] * order.upload
    phases: list[tuple[Phase, int, Sequence[str]]] = [
        *sync,
        *[(Phase.DOWNLOAD, 0, ["model"])] * (order.model is not None),
        (Phase.SETUP, 0, asked),  # data and graphs that the device has not cached
        *[(Phase.LOAD, 0, ())] * bool(order.load_only_s),
        *[(Phase.WARMUP, epoch, ()) for epoch in range(1, order.warmup_epochs + 1)],
        (Phase.EPOCH, 1, ()),
        *[(Phase.WAIT, 0, ["probe"])] * order.probe,
        *([] if stopped else [*later, *upload]),
        *sync,
    ]
    steps: list[Step] = []
    for kind, epoch, inside in phases:
        steps += [(kind, epoch, "start"), *inside, (kind, epoch, "end")]
    return steps


def _contradictions(claims: Claims) -> Iterator[str]:
    """From the coarse to the fine: the later ones rest on the earlier."""
    times = claims.result.times
    said = [exchange.what for exchange in times.exchanges]
    steps = steps_of(claims.order, said, stopped=times.stopped)
    yield from _out_of_order(claims.markers, [step for step in steps if not isinstance(step, str)])
    due = [step for step in steps if isinstance(step, str)]
    if said != due:
        yield f"the protocol: it asked for {', '.join(said) or 'nothing'} where {', '.join(due)} was due"
    yield from _other_words(claims)
    yield from _other_durations(claims)
    yield from _other_totals(claims)
    yield from _other_parameters(claims)


def _out_of_order(markers: Sequence[EpochMarker], due: Sequence[Edge]) -> Iterator[str]:
    for marker, edge in zip_longest(markers, due):
        if marker is None:
            yield f"the protocol: {_name(edge)} is missing"
        elif edge != (marker.kind, marker.epoch, marker.edge):
            wanted = f"{_name(edge)} was due" if edge is not None else "the job was over"
            yield f"the protocol: marker {marker.seq} is {_name(_edge(marker))} where {wanted}"
    for before, after in pairwise(markers):
        if after.t_dev_ns < before.t_dev_ns:
            by_s = (before.t_dev_ns - after.t_dev_ns) * 1e-9
            yield f"the protocol: {_name(_edge(after))} is {by_s:.3g} s before {_name(_edge(before))}"


def _other_words(claims: Claims) -> Iterator[str]:
    """The same thing said twice: during the job, and in the journal that was collected afterwards."""
    record, done, times = claims.record, claims.result.done, claims.result.times
    if record.markers != claims.markers:
        yield "itself: the markers in its journal changed after the job"
    if _words(ProbeReport, record.probe) != _words(ProbeReport, claims.result.probe):
        yield "itself: the probe's report in its journal is not the one that was sent"
    if _words(JobEnd, record.end) != _words(JobEnd, done):
        yield "itself: the end in its journal is not the one that was sent"
    outcome = "stopped" if times.stopped else "finished"
    epochs = 1 if times.stopped else claims.order.epochs
    if (done.outcome, done.epochs) != (outcome, epochs):
        yield f"the host: it {done.outcome} after {done.epochs} epochs instead of {outcome} after {epochs}"
    decision = record.decision
    if claims.order.probe and (decision is None or decision.by != "host" or decision.go_on == times.stopped):
        yield "the host: the decision in its journal is not the one that was sent"


def _words(kind: type[ProbeReport] | type[JobEnd], said: ProbeReport | JobEnd | None) -> dict[str, object]:
    return {} if said is None else said.model_dump(include=set(kind.model_fields))


def _other_durations(claims: Claims) -> Iterator[str]:
    """Times on the device's own clock that have to agree."""
    done, record, at_ns = claims.result.done, claims.record, _at_ns(claims)
    epochs_s = _epochs_s(claims)
    if not all(epochs_s):
        yield "itself: an epoch of no time"
    probe = claims.result.probe
    if probe is not None and probe.duration_ns * 1e-9 != epochs_s[0]:
        yield (
            f"itself: it reported a probe of {probe.duration_ns * 1e-9:.6g} s, and its markers are "
            f"{epochs_s[0]:.6g} s apart"
        )
    began_ns = record.begin.clock.monotonic_ns if record.begin is not None else 0
    if not began_ns <= claims.markers[0].t_dev_ns <= claims.markers[-1].t_dev_ns <= done.t_dev_ns:
        yield "itself: markers lie outside the job that its journal tells of"
    decision = record.decision
    if decision is not None:
        wait = at_ns[Phase.WAIT, 0, "start"], at_ns[Phase.WAIT, 0, "end"]
        if not wait[0] <= decision.t_dev_ns <= wait[1]:
            yield "itself: the decision came outside its wait for it"
    alone_s = claims.order.load_only_s
    if alone_s:
        was_s = (at_ns[Phase.LOAD, 0, "end"] - at_ns[Phase.LOAD, 0, "start"]) * 1e-9
        if was_s < alone_s - READING_S:
            yield f"its order: {was_s:.3g} s of load alone instead of {alone_s:g} s"


def _other_totals(claims: Claims) -> Iterator[str]:
    """What the device counted, against the time that it had."""
    done, epochs_s = claims.result.done, _epochs_s(claims)
    most_s = CORES_HIDDEN * (claims.cpus or math.inf) * (sum(epochs_s) + 0.1 * len(epochs_s))
    if done.cpu.epochs_s > most_s:
        yield f"itself: {done.cpu.epochs_s:.3g} s of processor time in epochs of {sum(epochs_s):.3g} s"
    lived_s = (claims.result.times.done_ns - claims.result.times.sent_ns) * 1e-9
    load = done.background
    if load is not None and (load.wall_s > load.workers * lived_s or load.cpu_s > 1.1 * load.wall_s + 0.1):
        yield f"the host: a background load of {load.wall_s:.3g} s in a job of {lived_s:.3g} s"
    if not 0 <= (done.suspended_ns or 0) * 1e-9 <= lived_s:
        yield f"the host: it slept for {(done.suspended_ns or 0) * 1e-9:.3g} s in a job of {lived_s:.3g} s"


def _at_ns(claims: Claims) -> dict[Edge, int]:
    """Device time of every edge; a second sync pattern hides the first."""
    return {_edge(marker): marker.t_dev_ns for marker in claims.markers}


def _epochs_s(claims: Claims) -> list[float]:
    at_ns = _at_ns(claims)
    numbers = range(1, claims.result.done.epochs + 1)
    return [(at_ns[Phase.EPOCH, n, "end"] - at_ns[Phase.EPOCH, n, "start"]) * 1e-9 for n in numbers]


def _other_parameters(claims: Claims) -> Iterator[str]:
    """What markers carry beside their time."""
    order, done = claims.order, claims.result.done
    wanted = order.sync.model_dump() if order.sync is not None else {}
    sizes = {
        Phase.DOWNLOAD: order.model.size if order.model is not None else None,
        Phase.UPLOAD: done.result.size if done.result is not None else None,
    }
    worked = False
    start_ns = 0
    for marker in claims.markers:
        if marker.kind in sizes and marker.extra.get("bytes") != sizes[marker.kind]:
            yield f"the host: {marker.extra.get('bytes')!r:.20} bytes of {marker.kind.value}"
        worked = worked or marker.kind is Phase.EPOCH
        if marker.kind is not Phase.SYNC:
            continue
        if marker.extra.get("when") != ("after" if worked else "before"):
            yield f"the protocol: a sync pattern {marker.extra.get('when')!r:.20} the work"
        if marker.edge == "start":
            start_ns = marker.t_dev_ns
            if {name: marker.extra.get(name) for name in wanted} != wanted:
                yield "its order: it played another sync pattern"
        elif order.sync is not None and marker.t_dev_ns - start_ns < order.sync.duration_ns:
            yield "its order: a sync pattern that ended before its last bit"


def _impossible(claims: Claims, clock: ClockFit) -> Iterator[str]:
    """Markers before what they needed was sent, or after they were told of."""
    times = claims.result.times
    by_name = {exchange.what: exchange for exchange in times.exchanges}
    steps = steps_of(claims.order, list(by_name), stopped=times.stopped)
    lived_s = (times.done_ns - times.sent_ns) * 1e-9
    slack_ns = 1e9 * (TOLERANCE_SD * clock.sync_uncertainty_s + READING_S + WANDER_PPM * 1e-6 * lived_s)
    host_ns = iter([clock.to_host_ns(marker.t_dev_ns) for marker in claims.markers])
    placed = [(step, 0 if isinstance(step, str) else next(host_ns)) for step in steps]
    sent_ns, sent = times.sent_ns, "sent the job"
    for step, at_ns in placed:
        if isinstance(step, str):
            sent_ns, sent = by_name[step].sent_ns, _SENT.get(step, f"sent {step}")
        elif at_ns < sent_ns - slack_ns:
            yield _outside(step, sent_ns - at_ns, f"before this host {sent}", slack_ns)
    heard_ns, heard = times.done_ns, "heard that the job was over"
    for step, at_ns in reversed(placed):
        if isinstance(step, str):
            heard_ns, heard = by_name[step].heard_ns, _HEARD.get(step, f"was asked for {step}")
        elif at_ns > heard_ns + slack_ns:
            yield _outside(step, at_ns - heard_ns, f"after this host {heard}", slack_ns)


_SENT = {"probe": "sent its decision", "result": "confirmed the result"}
_HEARD = {"probe": "heard the probe's report", "result": "was sent the result"}


def _outside(edge: Edge, by_ns: int, what: str, slack_ns: float) -> str:
    known = f"the clocks agree to {slack_ns * 1e-6:.2g} ms"
    return f"this host's clock: {_name(edge)} is {by_ns * 1e-9:.3g} s {what} ({known})"


def _edge(marker: EpochMarker) -> Edge:
    return marker.kind, marker.epoch, marker.edge


def _name(edge: Edge | None) -> str:
    if edge is None:
        return "nothing"
    kind, epoch, side = edge
    return f"the {side} of {kind.value}" + (f" {epoch}" if epoch else "")
