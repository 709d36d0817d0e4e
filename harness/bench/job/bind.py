"""The evidence of a job bound together: clock aligned, phases checked, ``capture.json`` written last."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from device_agents import Job, JobRecord, JobResult, Ping
from device_agents.protocol import Hello, Telemetry
from harness.bench.job.cooldown import DeviceState
from harness.bench.job.telemetry import read_heat, write_telemetry
from harness.bench.job.verify import device_findings, require_accounted, require_load, require_power
from harness.bench.job.workload import Workload
from harness.bench.matrix import BenchJob
from harness.clock import align, burst_runs, fit_pings
from harness.evidence.capture import (
    Background,
    CaptureRecord,
    CaptureSession,
    DeviceFacts,
    HostWindow,
    phases_of,
    write_capture,
)
from harness.evidence.claims import Claims, require_consistent, require_in_time
from harness.evidence.clock_fit import PingObservation
from harness.evidence.first_epoch import with_disguised
from harness.evidence.unaccounted import unaccounted
from harness.inventory import Device
from power.recording import open_recording


@dataclass(frozen=True, slots=True)
class JobEvidence:
    """Everything that a capture is made of, the recording in ``folder`` being closed.

    Attributes:
        session: In which it was measured.
        order: What the agent was told to do.
        device: As the inventory knows it.
        state: As it was asked before the round.
        hello: What its agent said of itself.
        result: What came back during the round, and when.
        record: What the round left on the device.
    """

    folder: Path
    capture_id: str
    job: BenchJob
    session: CaptureSession
    attempt: int
    order: Job
    work: Workload
    device: Device
    state: DeviceState
    hello: Hello
    result: JobResult
    record: JobRecord
    pings: tuple[Ping, ...]
    idle: tuple[HostWindow, ...]


def bind(evidence: JobEvidence) -> CaptureRecord:
    """Check the evidence and write the capture; once its file is there, the job is finished.

    Raises:
        DataQualityError: The evidence must not become numbers.
    """
    record, order = evidence.record, evidence.order
    write_telemetry(evidence.folder, record)  # first: it is evidence also of a job that is refused
    recording = open_recording(evidence.folder)
    end = record.end
    claims = Claims(order, evidence.result, record, evidence.hello.cpus)
    require_consistent(claims)
    require_load(end, order.background)
    require_in_time(claims, fit_pings(evidence.pings))
    alignment = align(recording, evidence.pings, burst_runs(record.markers))
    phases = phases_of(record.markers, alignment.fit)
    seen = require_power(recording, phases, evidence.idle)
    times = evidence.result.times
    left = unaccounted(phases, times, [ping.round_trip_ns for ping in evidence.pings])
    left = with_disguised(left, phases, times, recording, evidence.idle)
    seen += require_accounted(recording, left)
    heat = read_heat(record.telemetry_of(Telemetry), record.markers)
    return write_capture(
        evidence.folder,
        capture_id=evidence.capture_id,
        device=_facts(evidence),
        workload=order.workload,
        dataset=evidence.work.dataset,
        synthetic_data=order.shard is None,
        backend=order.backend,
        samples=order.samples,
        batch_size=evidence.work.batch_size,
        threads=order.threads,
        local_epochs=order.epochs,
        warmup_epochs=order.warmup_epochs,
        background=_background(evidence),
        repetition=evidence.job.repetition,
        session=evidence.session,
        attempt=evidence.attempt,
        seed=order.seed,
        task_sha256=None if order.task is None else order.task.sha256,
        throttled_epochs=heat.throttled_epochs,
        throttling_known=heat.throttling_known,
        temperature=heat.temperature,
        clock=alignment.fit,
        idle=evidence.idle,
        pings=tuple(PingObservation(**asdict(ping)) for ping in evidence.pings),
        bursts=alignment.bursts,
        host_times=evidence.result.times,
        suspended_ns=end.suspended_ns if end is not None else None,
        epochs_cpu_s=end.cpu.epochs_s if end is not None else None,
        random_operations=end.random_operations if end is not None else None,
        findings=(*alignment.findings, *seen, *device_findings(record, order)),
    )


def _facts(evidence: JobEvidence) -> DeviceFacts:
    device, said = evidence.device, dict(evidence.state.facts)
    backend = evidence.order.backend
    installed = evidence.hello.modules.get(backend)
    software = {} if installed is None else {backend: installed}
    product = device.product or said.pop("product", "")
    return DeviceFacts(
        name=evidence.job.cell.device,
        transport=device.transport,
        python=evidence.hello.python,
        boot_id=evidence.hello.boot_id,
        cpus=evidence.hello.cpus,
        governor=said.pop("governor", ""),
        product=product,
        battery=device.battery,
        facts={**said, **software, **device.facts},
    )


def _background(evidence: JobEvidence) -> Background:
    load, level = evidence.order.background, evidence.job.cell.load
    if load is None:
        return Background(name=level.name)
    used = evidence.record.end.background if evidence.record.end is not None else None
    asked = load.cores * level.cpu_share
    return Background(
        name=level.name,
        kind=load.kind,
        cores=load.cores,
        cpu_share=level.cpu_share,
        load=min(1.0, asked / (evidence.hello.cpus or load.cores)),
        used_cpu_s=used.cpu_s if used is not None else None,
        wall_s=used.wall_s if used is not None else None,
    )
