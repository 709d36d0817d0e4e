"""The wire between host and agent: JSON lines, versioned, numbered, bounded; raw blocks behind their headers.

Host to agent: ``hello``, ``ping``, ``job``, ``blob``, ``decide``, ``got``, ``cancel``, ``cancel_orphan``,
``require_free``, ``attach``, ``collect``, ``fetch``, ``forget``, ``clear_cache``. Agent to host: the classes
below.

What a device sends is untrusted: every line is bounded in size and validated before anything looks at it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from device_agents.job import BlobRef
from device_agents.payload.link.wire import MAX_COLLECT_BYTES, MAX_LINE_BYTES
from joulefleet.config import ClosedModel, sentence
from joulefleet.errors import DeviceProtocolError

__all__ = [
    "EpochMarker", "Heartbeat", "Hello", "JobEnd", "Phase", "ProbeDone", "ProbeReport", "SourceLost",
    "Sources", "Telemetry", "TelemetryMessage",
]  # fmt: skip

Nanoseconds = Annotated[int, Field(ge=0, lt=2**63)]
Seconds = Annotated[float, Field(ge=0, lt=1e9)]
JobId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Name = Annotated[str, Field(max_length=128)]
ExtraValue = Name | int | float | bool | None
Extra = Annotated[dict[Name, ExtraValue], Field(max_length=32)]


class Phase(StrEnum):
    """What the device is doing between two markers of the same kind."""

    SETUP = "setup"
    SYNC = "sync"
    DOWNLOAD = "download"
    LOAD = "load"
    WARMUP = "warmup"
    EPOCH = "epoch"
    WAIT = "wait"
    UPLOAD = "upload"
    IDLE = "idle"


class EpochMarker(ClosedModel):
    """A phase begins or ends, on the device's own monotonic clock.

    Attributes:
        kind: Which phase.
        edge: Whether it begins or ends here.
        epoch: Local epoch from 1 on; 0 outside epochs. Epoch 1 is the probe.
        t_dev_ns: Device-monotonic nanoseconds.
        seq: Number of the marker in its job, from 0 on without holes.
        extra: ``bytes`` of a transfer; parameters of a sync pattern.
    """

    kind: Phase
    edge: Literal["start", "end"]
    epoch: int = Field(default=0, ge=0, le=100_000)
    t_dev_ns: Nanoseconds
    seq: int = Field(ge=0, le=1_000_000)
    extra: Extra = Field(default_factory=dict)


class Clocks(ClosedModel):
    """All of the device's clocks, read together. Markers use the monotonic one."""

    monotonic_ns: Nanoseconds
    realtime_ns: Nanoseconds
    boottime_ns: Nanoseconds | None


class FromAgent(ClosedModel):
    """Base of what an agent sends; ``seq`` numbers its messages from 0 on without holes."""

    seq: int = Field(ge=0)


class Hello(FromAgent):
    """The agent's first words.

    Attributes:
        modules: Versions of what backends need, as installed there.
    """

    type: Literal["hello"] = "hello"
    version: int
    pid: int
    python: str = Field(max_length=64)
    modules: dict[Name, Name] = Field(default_factory=dict, max_length=16)
    cpus: int | None = Field(default=None, ge=1, le=65_536)
    boot_id: str = Field(max_length=64)
    clock: Clocks


class Pong(FromAgent):
    """Answer to a ping, with the device's clock when it was handled."""

    type: Literal["pong"] = "pong"
    nonce: int
    t_dev_ns: Nanoseconds


class Accepted(FromAgent):
    """The job has a folder and a journal: from here on it can be collected."""

    type: Literal["accepted"] = "accepted"
    job_id: JobId


class Want(FromAgent):
    """The agent asks for a blob that the job names."""

    type: Literal["want"] = "want"
    job_id: JobId
    name: Annotated[str, Field(pattern=r"^(model|shard|task|graph-[1-9][0-9]{0,5})$")]
    sha256: str
    size: int


class MarkerMessage(FromAgent):
    """A marker, sent as it happens (non-quiet mode)."""

    type: Literal["marker"] = "marker"
    marker: EpochMarker


class Telemetry(ClosedModel):
    """The state of the device at one moment: values by column, in the order that `Sources` gives.

    None stands for what could not be read at that moment.
    """

    type: Literal["telemetry"] = "telemetry"
    t_dev_ns: Nanoseconds
    values: dict[Name, Annotated[tuple[float | None, ...], Field(max_length=1024)]] = Field(max_length=32)


class Sources(ClosedModel):
    """What the device can tell: the parts of each column, and why the sources that are missing are."""

    type: Literal["sources"] = "sources"
    columns: dict[Name, Annotated[tuple[Name, ...], Field(max_length=1024)]] = Field(max_length=32)
    missing: dict[Name, Name] = Field(max_length=32)


class SourceLost(ClosedModel):
    """A source stopped answering."""

    type: Literal["source_lost"] = "source_lost"
    column: Name
    t_dev_ns: Nanoseconds


class TelemetryMessage(FromAgent, Telemetry):
    """Telemetry, sent as it happens."""


class SourcesMessage(FromAgent, Sources):
    """Sources, sent as they are found."""


class SourceLostMessage(FromAgent, SourceLost):
    """Sent as it happens."""


class Heartbeat(FromAgent):
    """A sign of life during a non-quiet job."""

    type: Literal["heartbeat"] = "heartbeat"
    t_dev_ns: Nanoseconds
    phase: Phase | Literal[""]
    epoch: int = Field(ge=0)


class ProbeReport(ClosedModel):
    """What the server decides on: the first epoch's loss and cost.

    Attributes:
        loss: Mean loss of the epoch; None if it is not a finite number.
        loss_rms: Root mean square of the samples' losses, which Oort ranks by; None if it is not known.
        duration_ns: Between the markers of epoch 1.
        samples: Training samples seen.
        telemetry: A few numbers about the device during the probe.
    """

    type: Literal["probe_done"] = "probe_done"
    loss: float | None
    loss_rms: float | None = None
    duration_ns: Nanoseconds
    samples: int = Field(ge=0)
    telemetry: Extra = Field(default_factory=dict)


class ProbeDone(FromAgent, ProbeReport):
    """The probe's report on the wire."""

    job_id: JobId


class CpuTime(ClosedModel):
    """Processor time: of the whole process during epochs, and of the agent's own threads during the job."""

    epochs_s: Seconds
    agent_s: Seconds


class BackgroundReport(ClosedModel):
    """What the background load used, all workers together."""

    workers: int = Field(ge=0)
    cpu_s: Seconds
    wall_s: Seconds
    copied_bytes: int = Field(ge=0)


class JobEnd(ClosedModel):
    """How a job ended.

    Attributes:
        outcome: ``finished`` all epochs; ``stopped`` after the probe, as decided; the others early, ``limit``
            because the device was too hot or its battery too low.
        code: Of a failure.
        message: Of a failure.
        problems: What went wrong beside the work, such as telemetry that ended early.
        epochs: Epochs that were completed.
        loss: Of the last one; None if there is none or it is not finite.
        uploaded: Whether the host has confirmed the result.
        result: What ``fetch`` returns.
        wall_step_ns: How far the device's wall clock moved beyond the time that passed. Harmless, as markers
            do not use it.
        suspended_ns: How long the device slept during the job; None if it cannot tell.
        random_operations: How the model's dropout and other draws were made; empty if it has none.
    """

    type: Literal["done"] = "done"
    outcome: Literal["finished", "stopped", "cancelled", "deadline", "link_lost", "limit", "failed"]
    code: str = Field(max_length=32)
    message: str = Field(max_length=4096)
    problems: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    epochs: int = Field(ge=0)
    loss: float | None
    uploaded: bool
    result: BlobRef | None
    background: BackgroundReport | None
    cpu: CpuTime
    t_dev_ns: Nanoseconds
    wall_step_ns: int
    suspended_ns: int | None
    random_operations: str = Field(default="", max_length=100)


class Done(FromAgent, JobEnd):
    """The end of a job on the wire."""

    job_id: JobId


class Blob(FromAgent):
    """Header of a raw block that follows at once."""

    type: Literal["blob"] = "blob"
    job_id: JobId
    name: Literal["result"]
    size: int = Field(ge=0)
    sha256: str


class Chunk(FromAgent):
    """Header of a piece of a job's file that follows at once."""

    type: Literal["chunk"] = "chunk"
    job_id: JobId
    file: Literal["journal", "telemetry", "log"]
    offset: int = Field(ge=0)
    size: int = Field(ge=0, le=MAX_COLLECT_BYTES)


class JobStatus(FromAgent):
    """What a device knows about a job.

    Attributes:
        state: ``running`` in some process; ``done`` with its end in the journal; ``died`` without one;
            ``rebooted``: died, because the device did.
    """

    type: Literal["status"] = "status"
    job_id: JobId
    state: Literal["running", "done", "died", "rebooted"]
    result: BlobRef | None
    journal_bytes: int = Field(ge=0)
    telemetry_bytes: int = Field(ge=0)
    log_bytes: int = Field(ge=0)


class Ok(FromAgent):
    """Done as asked."""

    type: Literal["ok"] = "ok"
    job_id: str = Field(max_length=64)


class AgentError(FromAgent):
    """The agent refuses."""

    type: Literal["error"] = "error"
    code: str = Field(max_length=32)
    message: str = Field(max_length=4096)
    job_id: str = Field(max_length=64)


Message = (
    Hello | Pong | Accepted | Want | MarkerMessage | TelemetryMessage | SourcesMessage | SourceLostMessage
    | Heartbeat | ProbeDone | Done | Blob | Chunk | JobStatus | Ok | AgentError
)  # fmt: skip
_ADAPTER: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="type")])


def parse_line(line: bytes) -> Message:
    """Validate one line from a device.

    Raises:
        DeviceProtocolError: It is too long, not JSON, or not a message of this protocol.
    """
    if len(line) > MAX_LINE_BYTES:
        raise DeviceProtocolError(f"the agent sent a line of {len(line)} bytes, more than {MAX_LINE_BYTES}")
    try:
        return _ADAPTER.validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        raise DeviceProtocolError(
            f"the agent sent a line that is no message ({sentence(first)}): {line[:80]!r}",
            hint="is the agent on the device of the same version?",
        ) from None
