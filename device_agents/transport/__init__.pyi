from device_agents.transport.base import Channel, Completed, Transport
from device_agents.transport.host_keys import HostKey, fetch_host_key, host_name, known_keys, trust
from device_agents.transport.local import LocalChannel, LocalTransport
from device_agents.transport.ssh import SshChannel, SshTransport
from device_agents.transport.ssh_login import SshTarget

__all__ = [
    "Channel", "Completed", "HostKey", "LocalChannel", "LocalTransport", "SshChannel", "SshTarget",
    "SshTransport", "Transport", "fetch_host_key", "host_name", "known_keys", "trust",
]  # fmt: skip
