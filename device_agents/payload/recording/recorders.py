"""Everything that runs beside a job and writes about it: telemetry, power sensors, signs of life."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from device_agents.payload.faults import LIMIT, JobFault
from device_agents.payload.recording.journal import JobJournal
from device_agents.payload.recording.periodic import Periodic
from device_agents.payload.recording.sysfs_sampler import SysfsSampler
from device_agents.payload.recording.telemetry import Limits, TelemetryRecorder

if TYPE_CHECKING:
    from pathlib import Path

    from device_agents.payload.context import AgentContext
    from device_agents.payload.job import JobSpec
    from device_agents.payload.recording.journal import Markers

HEARTBEAT_S = 5.0


class Recorders:
    """The threads beside one job. A full disk ends their records before it ends the job: markers matter more.

    Attributes:
        limits: What the device must not exceed.
        problems: What ended early, and why; complete after `stop`.
    """

    def __init__(self, context: AgentContext, spec: JobSpec, path: Path, markers: Markers) -> None:
        self._context = context
        self._markers = markers
        self._journal = JobJournal(path)
        self._reader_began_s = context.reader.cpu_s
        self.limits = Limits(spec, lambda: context.interrupter.request(LIMIT))
        self.problems: list[str] = []
        self._telemetry = sampler = None
        if spec.telemetry_hz:
            limits = self.limits if self.limits.given else None
            self._telemetry = TelemetryRecorder(
                context.root, spec.telemetry_hz, self._journal, context.sender, limits
            )
        if spec.power_hz:
            sampler = SysfsSampler(context.root, spec.power_hz, self._journal)
        heartbeat = None if spec.quiet else HeartbeatSender(context, markers)
        self._parts: list[Periodic] = [p for p in (self._telemetry, sampler, heartbeat) if p is not None]

    def start(self) -> None:
        """Start what the job asks for."""
        for part in self._parts:
            part.start()

    def stop(self) -> None:
        """Stop everything and close the journal."""
        for part in self._parts:
            try:
                part.stop()
            except JobFault as fault:  # noqa: PERF203 - the next one has to be stopped all the same
                self.problems.append(str(fault))
        self._journal.close()
        self.problems += [f"{part.name}: {part.failure}" for part in self._parts if part.failure is not None]

    def begin_summary(self) -> None:
        """Summarise telemetry from here on."""
        if self._telemetry is not None:
            self._telemetry.begin_summary()

    def summary(self) -> dict[str, Any]:
        """Telemetry since `begin_summary`, in a few numbers."""
        return {"samples": 0} if self._telemetry is None else self._telemetry.summary()

    def cpu_s(self) -> float:
        """Processor time of all agent threads for this job, the markers' included."""
        reader_s = self._context.reader.cpu_s - self._reader_began_s
        return sum(part.cpu_s for part in self._parts) + self._markers.cpu_s + reader_s


class HeartbeatSender(Periodic):
    """Tells the host which phase is running, and shows it what was printed."""

    def __init__(self, context: AgentContext, markers: Markers) -> None:
        super().__init__("heartbeat", HEARTBEAT_S)
        self._context = context
        self._markers = markers

    def turn(self) -> None:
        """One beat."""
        where = {"phase": self._markers.phase, "epoch": self._markers.epoch}
        beat = {"type": "heartbeat", "t_dev_ns": time.monotonic_ns(), **where}
        self._context.sender.offer(beat, wait_s=HEARTBEAT_S)
        self._context.output.relay()
