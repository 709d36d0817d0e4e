"""How the host reaches a device: run a command, keep one running, move files. Local process or SSH."""

from device_agents.transport.base import Channel, Completed, Transport
from device_agents.transport.local import LocalTransport

__all__ = ["Channel", "Completed", "LocalTransport", "Transport"]
