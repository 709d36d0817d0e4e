"""The wire between host and agent: JSON lines, versioned, numbered, bounded.

Host to agent: ``hello``, ``ping``, ``job``, ``decide``, ``cancel``. Agent to host: ``hello``, ``pong``,
``marker``, ``probe_done``, ``done``, ``error``. What a device sends is untrusted: every line is bounded
in size and validated before anything else looks at it.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from device_agents.transport.base import MAX_LINE_BYTES
from fedjoule.config import ClosedModel
from fedjoule.errors import DeviceError

PROTOCOL_VERSION = 1

ExtraValue = str | int | float | bool | None
Nanoseconds = Annotated[int, Field(ge=0, lt=2**63)]


class Phase(StrEnum):
    """What the device is doing between two markers of the same kind."""

    DOWNLOAD = "download"
    EPOCH = "epoch"
    WAIT = "wait"
    UPLOAD = "upload"
    IDLE = "idle"
    SYNC = "sync"


class EpochMarker(ClosedModel):
    """A phase begins or ends, on the device's own monotonic clock.

    Attributes:
        kind: Which phase.
        edge: Whether it begins or ends here.
        epoch: Local epoch from 1 on; 0 outside epochs. Epoch 1 is the probe.
        t_dev_ns: Device-monotonic nanoseconds.
        seq: Number of the marker in its session, from 0 on without holes.
    """

    kind: Phase
    edge: Literal["start", "end"]
    epoch: int = Field(default=0, ge=0, le=100_000)
    t_dev_ns: Nanoseconds
    seq: int = Field(ge=0, le=1_000_000)
    extra: dict[str, ExtraValue] = Field(default_factory=dict, max_length=32)


class Hello(ClosedModel):
    """The agent's first words."""

    type: Literal["hello"] = "hello"
    version: int
    pid: int
    python: str = Field(max_length=64)
    boot_id: str = Field(max_length=64)


class Pong(ClosedModel):
    """Answer to a ping, with the device's clock when it was handled."""

    type: Literal["pong"] = "pong"
    nonce: int
    t_dev_ns: Nanoseconds


class MarkerMessage(ClosedModel):
    """A marker, sent as it happens."""

    type: Literal["marker"] = "marker"
    marker: EpochMarker


class ProbeDone(ClosedModel):
    """What the server decides on: the first epoch's loss and cost."""

    type: Literal["probe_done"] = "probe_done"
    loss: float
    duration_ns: Nanoseconds
    samples: int = Field(ge=0)


class Done(ClosedModel):
    """The job is over. ``epochs`` tells whether it went all the way or stopped after the probe."""

    type: Literal["done"] = "done"
    epochs: int = Field(ge=0)
    loss: float


class AgentError(ClosedModel):
    """The agent could not do the job."""

    type: Literal["error"] = "error"
    message: str = Field(max_length=4096)


Message = Hello | Pong | MarkerMessage | ProbeDone | Done | AgentError
_ADAPTER: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="type")])


class Job(ClosedModel):
    """Work for the agent.

    Attributes:
        workload: Registered workload.
        samples: Training samples on the device.
        epochs: Local epochs in all, the probe included.
        seed: Root seed of data and order.
    """

    type: Literal["job"] = "job"
    workload: Literal["softmax"]
    samples: int = Field(gt=0, le=10_000_000)
    epochs: int = Field(gt=0, le=10_000)
    seed: int = Field(ge=0)


def parse_line(line: bytes) -> Message:
    """Validate one line from a device.

    Raises:
        DeviceError: It is too long, not JSON, or not a message of this protocol.
    """
    if len(line) > MAX_LINE_BYTES:
        raise DeviceError(f"the agent sent a line of {len(line)} bytes, more than {MAX_LINE_BYTES}")
    try:
        return _ADAPTER.validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        raise DeviceError(
            f"the agent sent a line that is no message ({first['msg']}): {line[:80]!r}",
            hint="is the agent on the device of the same version?",
        ) from None


def encode(message: dict[str, Any]) -> bytes:
    """One message as a line."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"
