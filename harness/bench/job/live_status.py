"""What is going on right now on every device, for a live view. Any thread writes, any thread reads."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from device_agents.protocol import Heartbeat, TelemetryMessage

if TYPE_CHECKING:
    from device_agents import LiveMessage
    from device_agents.protocol import EpochMarker
    from power import SampleBlock

SHOWN_S = 0.5
"""The watts shown are a mean over this long: a number that changes faster cannot be read."""


@dataclass(frozen=True, slots=True)
class DeviceNow:
    """One device at this moment.

    Attributes:
        job: Name of its job; empty between jobs.
        attempt: Of the job.
        stage: Of the job.
        phase: Inside the round, as far as the device tells; quiet ones tell when the probe is done.
        epoch: The last epoch known to have begun.
        power_w: Mean over the last half second; None without a running meter.
        temperature_c: The last that was heard of.
        failure: Why the last attempt on it failed; empty if it did not.
        stage_began_s: Monotonic time.
    """

    device: str
    job: str = ""
    attempt: int = 0
    stage: str = ""
    phase: str = ""
    epoch: int = 0
    power_w: float | None = None
    temperature_c: float | None = None
    failure: str = ""
    stage_began_s: float = 0.0


class StatusBoard:
    """The state of all devices."""

    def __init__(self, devices: tuple[str, ...]) -> None:
        self._lock = threading.Lock()
        self._devices = {name: DeviceNow(name) for name in devices}

    def set(self, device: str, **changes: Any) -> None:
        """Change what is known about a device."""
        if "stage" in changes:
            changes.setdefault("stage_began_s", time.monotonic())
            changes.setdefault("phase", "")
        with self._lock:
            self._devices[device] = replace(self._devices[device], **changes)

    def clear(self, device: str) -> None:
        """The device has no job any more."""
        with self._lock:
            last = self._devices[device]
            self._devices[device] = DeviceNow(device, temperature_c=last.temperature_c, failure=last.failure)

    def snapshot(self) -> list[DeviceNow]:
        """All devices."""
        with self._lock:
            return list(self._devices.values())


class DeviceDisplay:
    """What one device's job shows on the board."""

    def __init__(self, board: StatusBoard, device: str) -> None:
        self._board = board
        self._device = device
        self._sum_w = 0.0
        self._rows = 0
        self._shown_ns = 0

    def set(self, **changes: Any) -> None:
        """Change what is known about the device."""
        self._board.set(self._device, **changes)

    def clear(self) -> None:
        """It has no job any more."""
        self._board.clear(self._device)

    def marker(self, marker: EpochMarker) -> None:
        """A phase began, as far as the device tells while it happens."""
        if marker.edge == "start":
            self.set(phase=marker.kind.value, epoch=marker.epoch)

    def message(self, message: LiveMessage) -> None:
        """Temperature and phase of a device that is not quiet."""
        if isinstance(message, TelemetryMessage):
            known = [c for c in message.values.get("temperature_c", ()) if c is not None]
            if known:
                self.temperature(max(known))
        elif isinstance(message, Heartbeat) and message.phase:
            self.set(phase=str(message.phase), epoch=message.epoch)

    def temperature(self, temperature_c: float) -> None:
        """Of its hottest sensor."""
        self.set(temperature_c=temperature_c)

    def block(self, block: SampleBlock) -> None:
        """Samples as the watts on the board."""
        self._sum_w += float(block.power_w.sum(dtype=float))
        self._rows += len(block)
        last_ns = int(block.t_ns[-1])
        if last_ns - self._shown_ns >= SHOWN_S * 1e9:
            self.set(power_w=self._sum_w / self._rows)
            self._sum_w, self._rows, self._shown_ns = 0.0, 0, last_ns
