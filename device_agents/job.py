"""`Job`: the work order that the host gives an agent."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from device_agents.payload.interference import MAX_STEPS
from device_agents.payload.link.wire import MAX_BLOB_BYTES
from joulefleet.config import ClosedModel
from joulefleet.provenance import Sha256

Backend = Literal["numpy", "torch", "onnxruntime"]


class BlobRef(ClosedModel):
    """Bytes known by their hash."""

    sha256: Sha256
    size: int = Field(ge=0, le=MAX_BLOB_BYTES)

    @classmethod
    def of(cls, data: bytes) -> Self:
        """The name of some bytes."""
        return cls(sha256=hashlib.sha256(data).hexdigest(), size=len(data))


class SyncPattern(ClosedModel):
    """CPU bursts for clock alignment; see `device_agents.payload.sync_pattern`.

    Attributes:
        order: 2**order - 1 bits.
        bit_ns: Duration of one bit.
        cores: How many cores work during a one.
    """

    order: int = Field(default=6, ge=3, le=10)
    bit_ns: int = Field(default=50_000_000, ge=10**6, le=10**10)
    cores: int = Field(default=1, ge=1, le=64)

    @property
    def duration_ns(self) -> int:
        """Of the whole pattern."""
        return ((1 << self.order) - 1) * self.bit_ns


class LoadStep(ClosedModel):
    """One stretch of background load: for how long, and what share of a core each worker takes."""

    duration_s: float = Field(gt=0)
    cpu: float = Field(ge=0, le=1)


class BackgroundLoad(ClosedModel):
    """What runs beside the training; see `device_agents.payload.interference`.

    Attributes:
        kind: ``cpu`` computes in registers, ``memory`` copies between two large buffers.
        cores: Number of workers.
        steps: Load over time, repeated from the first; one step is a constant load. A recorded sequence of
            app intensities becomes one step per interval.
        buffer_bytes: Of each of the two buffers of kind ``memory``; larger than any cache to be of use.
    """

    kind: Literal["cpu", "memory"] = "cpu"
    cores: int = Field(default=1, ge=1, le=64)
    steps: Annotated[tuple[LoadStep, ...], Field(min_length=1, max_length=MAX_STEPS)]
    buffer_bytes: int = Field(default=64 << 20, ge=1 << 12, le=1 << 30)

    @classmethod
    def constant(cls, cpu: float, cores: int = 1, kind: Literal["cpu", "memory"] = "cpu") -> Self:
        """The same load all the time."""
        return cls(kind=kind, cores=cores, steps=(LoadStep(duration_s=1.0, cpu=cpu),))


class Job(ClosedModel):
    """Work for the agent.

    Attributes:
        workload: ``softmax``, or a task of `device_agents.workloads.tasks`.
        backend: What trains: ``numpy`` (softmax only), ``torch`` or ``onnxruntime``.
        samples: Training samples on the device.
        epochs: Local epochs in all, the probe included.
        warmup_epochs: Trained before the first local epoch, as phase ``warmup``: they warm the device up and
            count nowhere.
        batch_size: Samples per step; 0 for the workload's own.
        learning_rate: Of SGD; None for the workload's own. The numpy backend has only its own.
        momentum: Likewise.
        seed: Root seed of synthetic data, initial weights and order.
        threads: Of the backend; 0 leaves it to the backend.
        probe: Whether the agent reports after the first epoch and waits for the decision.
        upload: Whether the trained weights come back over the link.
        quiet: Whether markers and telemetry stay on the device until they are collected, so that nothing is
            sent between the phases under a meter.
        on_disconnect: What the agent does when the link dies.
        deadline_s: For the whole job, on the device.
        decision_timeout_s: After this long without a decision the link counts as dead.
        telemetry_hz: 0 for none.
        power_hz: Rate at which the device's own power sensors are read; 0 for none.
        sync: Pattern to play before and after the work.
        background: Load beside the training.
        load_only_s: How long the background load runs alone, as phase ``load``, when everything is set up and
            before the training: what it draws by itself is not the training's cost.
        temperature_max_c: The device ends the job when one of its sensors is hotter; None for no limit.
        battery_min_level: The device ends the job when its battery is lower, 0 to 1; None for no limit.
        model: Weights to start from; transferred and marked as the download phase.
        shard: Training data, cached on the device by its hash; without it, synthetic data of the right shape.
        graphs: Training step for ``onnxruntime``, one per batch size of the epoch, cached by their hashes.
        task: A task of the user's own (`device_agents.workloads.tasks.pack_task`), with its file for torch.
    """

    workload: str = Field(min_length=1, max_length=64)
    backend: Backend = "numpy"
    samples: int = Field(gt=0, le=10_000_000)
    epochs: int = Field(gt=0, le=10_000)
    warmup_epochs: int = Field(default=0, ge=0, le=10_000)
    batch_size: int = Field(default=0, ge=0, le=1_000_000)
    learning_rate: float | None = Field(default=None, gt=0, le=1000)
    momentum: float | None = Field(default=None, ge=0, lt=1)
    seed: int = Field(ge=0, lt=2**63)
    threads: int = Field(default=0, ge=0, le=1024)
    probe: bool = True
    upload: bool = False
    quiet: bool = True
    on_disconnect: Literal["stop", "finish"] = "stop"
    deadline_s: float = Field(default=3600.0, gt=0, le=604_800)
    decision_timeout_s: float = Field(default=600.0, gt=0, le=86_400)
    telemetry_hz: float = Field(default=2.0, ge=0, le=5)
    power_hz: float = Field(default=0.0, ge=0, le=1000)
    sync: SyncPattern | None = None
    background: BackgroundLoad | None = None
    load_only_s: float = Field(default=0.0, ge=0, le=86_400)
    temperature_max_c: float | None = Field(default=None, ge=-100, le=200)
    battery_min_level: float | None = Field(default=None, ge=0, le=1)
    model: BlobRef | None = None
    shard: BlobRef | None = None
    graphs: dict[int, BlobRef] = Field(default_factory=dict, max_length=8)
    task: BlobRef | None = None

    @model_validator(mode="after")
    def _backend_has_what_it_needs(self) -> Self:
        if (self.backend == "onnxruntime") != bool(self.graphs):
            raise ValueError("graphs: backend onnxruntime needs them, no other takes them")
        if self.backend == "onnxruntime" and self.model is None:
            raise ValueError("model: a device without torch cannot make its own initial weights")
        return self

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.load_only_s and self.background is None:
            raise ValueError("load_only_s: there is no background load to measure alone")
        limited = self.temperature_max_c is not None or self.battery_min_level is not None
        if limited and not self.telemetry_hz:
            raise ValueError("telemetry_hz: limits of temperature and battery are watched by the telemetry")
        return self

    def blob_refs(self) -> dict[str, BlobRef]:
        """Every blob the job names, as the wire calls them."""
        named = {"model": self.model, "shard": self.shard, "task": self.task}
        graphs = {f"graph-{size}": ref for size, ref in self.graphs.items()}
        return {name: ref for name, ref in named.items() if ref is not None} | graphs
