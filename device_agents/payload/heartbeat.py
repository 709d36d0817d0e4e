"""Signs of life during a job that is not quiet."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from device_agents.payload.recording.periodic import Periodic

if TYPE_CHECKING:
    from device_agents.payload.device import AgentContext
    from device_agents.payload.recording.markers import Markers

HEARTBEAT_S = 5.0


class HeartbeatSender(Periodic):
    """Tells the host which phase is running, and shows it what was printed."""

    def __init__(self, device: AgentContext, markers: Markers) -> None:
        super().__init__("heartbeat", HEARTBEAT_S)
        self._device = device
        self._markers = markers

    def turn(self) -> None:
        """One beat."""
        where = {"phase": self._markers.phase, "epoch": self._markers.epoch}
        beat = {"type": "heartbeat", "t_dev_ns": time.monotonic_ns(), **where}
        self._device.sender.offer(beat, wait_s=HEARTBEAT_S)
        self._device.output.relay()
