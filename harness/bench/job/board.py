"""What is going on right now on every device, for a live view. Any thread writes, any thread reads."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from power.model import SampleBlock

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
            self._devices[device] = DeviceNow(device, temperature_c=last.temperature_c)

    def snapshot(self) -> list[DeviceNow]:
        """All devices."""
        with self._lock:
            return list(self._devices.values())


class PowerShown:
    """Turns blocks of samples into the watts on the board."""

    def __init__(self, board: StatusBoard, device: str) -> None:
        self._board = board
        self._device = device
        self._sum_w = 0.0
        self._rows = 0
        self._shown_ns = 0

    def __call__(self, block: SampleBlock) -> None:
        """Take a block into account."""
        self._sum_w += float(block.power_w.sum(dtype=float))
        self._rows += len(block)
        last_ns = int(block.t_ns[-1])
        if last_ns - self._shown_ns >= SHOWN_S * 1e9:
            self._board.set(self._device, power_w=self._sum_w / self._rows)
            self._sum_w, self._rows, self._shown_ns = 0.0, 0, last_ns
