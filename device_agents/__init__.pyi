from device_agents.deploy.bundle import build_bundle
from device_agents.deploy.install import Installation, start_agent
from device_agents.job import Backend, BackgroundLoad, BlobRef, Job, LoadStep, SyncPattern
from device_agents.onnx_export.cache import GraphCache
from device_agents.payload.tensors import pack_arrays, unpack_arrays
from device_agents.protocol import EpochMarker, Phase, ProbeDone
from device_agents.session.agent_session import AgentSession, Ping
from device_agents.session.host_times import HostTimes
from device_agents.session.job_record import JobRecord
from device_agents.session.link import LiveMessage
from device_agents.session.running_job import JobResult
from device_agents.transport.base import Transport
from device_agents.transport.local import LocalTransport
from device_agents.transport.ssh import SshTransport
from device_agents.transport.ssh_login import SshTarget

__all__ = [
    "AgentSession", "Backend", "BackgroundLoad", "BlobRef", "EpochMarker", "GraphCache",
    "HostTimes", "Installation",
    "Job", "JobRecord", "JobResult", "LiveMessage", "LoadStep", "LocalTransport", "Phase", "Ping",
    "ProbeDone", "SshTarget", "SshTransport", "SyncPattern", "Transport", "build_bundle", "pack_arrays",
    "start_agent", "unpack_arrays",
]  # fmt: skip
