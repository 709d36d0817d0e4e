"""What runs on the devices, and how the host reaches, deploys and steers it.

This file is shipped to devices: Python 3.9, and nothing is imported before a name is used. The usual names
are here. More is one door further: `device_agents.workloads` (tasks, models, training),
`device_agents.transport` (SSH), `device_agents.deploy` (the agent on a device), `device_agents.protocol`
(what it sends), `device_agents.payload.sync_pattern` (the pattern that aligns clocks).
"""

_NAMES = {
    "device_agents.deploy.bundle": ("build_bundle",),
    "device_agents.deploy.install": ("Installation", "start_agent"),
    "device_agents.job": ("Backend", "BackgroundLoad", "BlobRef", "Job", "LoadStep", "SyncPattern"),
    "device_agents.onnx_export.cache": ("GraphCache",),
    "device_agents.payload.tensors": ("pack_arrays", "unpack_arrays"),
    "device_agents.protocol": ("EpochMarker", "Phase", "ProbeDone"),
    "device_agents.session.agent_session": ("AgentSession", "Ping"),
    "device_agents.session.host_times": ("HostTimes",),
    "device_agents.session.job_record": ("JobRecord",),
    "device_agents.session.link": ("LiveMessage",),
    "device_agents.session.running_job": ("JobResult",),
    "device_agents.transport.base": ("Transport",),
    "device_agents.transport.local": ("LocalTransport",),
    "device_agents.transport.ssh": ("SshTransport",),
    "device_agents.transport.ssh_login": ("SshTarget",),
}
__all__ = sorted(name for names in _NAMES.values() for name in names)  # noqa: PLE0605


def __getattr__(name):
    for module, names in _NAMES.items():
        if name in names:
            return getattr(__import__(module, fromlist=[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return __all__
