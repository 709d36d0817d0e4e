"""Everything that runs beside a job and writes about it: telemetry, power sensors, signs of life."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from device_agents.payload.journal import Journal
from device_agents.payload.periodic import Periodic
from device_agents.payload.sysfs_sampler import SysfsSampler
from device_agents.payload.telemetry import Telemetry

if TYPE_CHECKING:
    from pathlib import Path

    from device_agents.payload.device import Device
    from device_agents.payload.job import JobSpec
    from device_agents.payload.markers import Markers

HEARTBEAT_S = 5.0


class Recorders:
    """The threads beside one job. A full disk ends them before it ends the job: markers matter more."""

    def __init__(self, device: Device, spec: JobSpec, path: Path, markers: Markers) -> None:
        self._device = device
        self._markers = markers
        self._journal = Journal(path)
        self._reader_began_s = device.reader.cpu_s
        self._telemetry = self._sampler = None
        if spec.telemetry_hz:
            self._telemetry = Telemetry(device.root, spec.telemetry_hz, self._journal, device.sender)
        if spec.power_hz:
            self._sampler = SysfsSampler(device.root, spec.power_hz, self._journal)
        self._heartbeat = None if spec.quiet else Periodic("heartbeat", HEARTBEAT_S, self._beat)

    def start(self) -> None:
        """Start what the job asks for."""
        for part in (self._telemetry, self._sampler, self._heartbeat):
            if part is not None:
                part.start()

    def stop(self) -> None:
        """Stop everything and close the journal."""
        for part in (self._heartbeat, self._telemetry, self._sampler):
            if part is not None:
                part.stop()
        self._journal.close()

    def begin_summary(self) -> None:
        """Summarise telemetry from here on."""
        if self._telemetry is not None:
            self._telemetry.begin_summary()

    def summary(self) -> dict[str, Any]:
        """Telemetry since `begin_summary`, in a few numbers."""
        return {"samples": 0} if self._telemetry is None else self._telemetry.summary()

    def cpu_s(self) -> float:
        """Processor time of all agent threads for this job, the markers' included."""
        parts = [part.thread for part in (self._telemetry, self._sampler) if part is not None]
        beside_s = sum(thread.cpu_s for thread in parts) + (self._heartbeat.cpu_s if self._heartbeat else 0.0)
        return beside_s + self._markers.cpu_s + self._device.reader.cpu_s - self._reader_began_s

    def problems(self) -> list[str]:
        """What ended early, and why."""
        parts = [part.thread for part in (self._telemetry, self._sampler) if part is not None]
        return [f"{thread.name}: {thread.failure}" for thread in parts if thread.failure is not None]

    def _beat(self) -> None:
        beat = {"type": "heartbeat", "t_dev_ns": time.monotonic_ns(), "phase": self._markers.phase}
        self._device.sender.offer({**beat, "epoch": self._markers.epoch}, wait=True)
        self._device.output.relay()
