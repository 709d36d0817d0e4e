"""How the host reaches a device: run a command, keep one running, move files. Local process or SSH."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "device_agents.transport.base": ("Channel", "Completed", "Transport"),
        "device_agents.transport.host_keys": (
            "HostKey",
            "fetch_host_key",
            "host_name",
            "known_keys",
            "trust",
        ),
        "device_agents.transport.local": ("LocalChannel", "LocalTransport"),
        "device_agents.transport.ssh": ("SshChannel", "SshTransport"),
        "device_agents.transport.ssh_login": ("SshTarget", "forget_passwords"),
    },
)
