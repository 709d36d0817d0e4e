"""What a job left behind on a device, collected and validated: `JobRecord`.

The journal and the telemetry journal come as bytes. They are untrusted: bounded before they are read, every
line checked against the classes here, markers without holes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from device_agents.protocol import (
    Clocks,
    EpochMarker,
    JobEnd,
    JobId,
    JobStatus,
    Name,
    Nanoseconds,
    ProbeReport,
    SourceLost,
    Sources,
    Telemetry,
)
from joulefleet.config import ClosedModel, sentence
from joulefleet.errors import DeviceProtocolError

T = TypeVar("T")

PowerQuantity = Literal["current_a", "voltage_v", "power_w", "energy_j"]


class Begin(ClosedModel):
    """First record: which boot of the device, and its clocks."""

    type: Literal["begin"]
    job_id: JobId
    version: int
    pid: int
    boot_id: str = Field(max_length=64)
    clock: Clocks


class MarkerRecord(ClosedModel):
    """A marker."""

    type: Literal["marker"]
    marker: EpochMarker


class DecisionRecord(ClosedModel):
    """What was decided after the probe: by the host, or by ``on_disconnect`` because the host was gone."""

    type: Literal["decision"]
    go_on: bool
    by: Literal["host", "policy"]
    t_dev_ns: Nanoseconds


class LinkLostRecord(ClosedModel):
    """When the agent noticed that the host was gone."""

    type: Literal["link_lost"]
    t_dev_ns: Nanoseconds


class PowerColumn(ClosedModel):
    """One quantity of a power sensor: SI value of one raw unit, and its smallest step if that is known."""

    scale: float = Field(gt=0)
    resolution: float | None = Field(gt=0)


class PowerSource(ClosedModel):
    """One power sensor of the device; see `device_agents.payload.recording.sysfs_power`."""

    type: Literal["power_source"]
    name: Name
    interface: Literal["hwmon", "iio", "powercap", "power_supply"]
    columns: dict[PowerQuantity, PowerColumn]
    update_interval_s: float | None = Field(gt=0)
    wrap_j: float | None = Field(gt=0)


class PowerBlock(ClosedModel):
    """A stretch of readings; see `device_agents.payload.recording.sysfs_sampler`."""

    type: Literal["power"]
    source: Name
    first_index: int = Field(ge=0)
    dropped: int = Field(ge=0)
    t_dev_ns: Annotated[tuple[Nanoseconds, ...], Field(max_length=1000)]
    read_ns: Nanoseconds
    raw: dict[PowerQuantity, tuple[int, ...]]

    @model_validator(mode="after")
    def _is_rectangular(self) -> PowerBlock:
        if any(len(column) != len(self.t_dev_ns) for column in self.raw.values()):
            raise ValueError("raw: a column is not as long as t_dev_ns")
        return self


class PowerRate(ClosedModel):
    """How fast a power sensor really was."""

    type: Literal["power_rate"]
    source: Name
    readings: int = Field(ge=0)
    updates: int = Field(ge=0)
    reading_hz: float | None
    update_hz: float | None


class NoPowerSource(ClosedModel):
    """The device has no power sensor that can be read."""

    type: Literal["no_power_source"]


JournalRecord = Begin | MarkerRecord | ProbeReport | DecisionRecord | LinkLostRecord | JobEnd
TelemetryRecord = Sources | Telemetry | SourceLost | PowerSource | PowerBlock | PowerRate | NoPowerSource

_JOURNAL: TypeAdapter[JournalRecord] = TypeAdapter(Annotated[JournalRecord, Field(discriminator="type")])
_TELEMETRY: TypeAdapter[TelemetryRecord] = TypeAdapter(
    Annotated[TelemetryRecord, Field(discriminator="type")]
)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """Everything a job left on the device.

    Attributes:
        state: As in `device_agents.protocol.JobStatus`.
        markers: In the order they were stamped.
        journal: All records of the journal.
        telemetry: All records of the telemetry journal.
        log: What was printed on the device during the job, the beginning if it is long.
    """

    state: str
    journal: tuple[JournalRecord, ...]
    telemetry: tuple[TelemetryRecord, ...]
    log: str

    @property
    def begin(self) -> Begin | None:
        """The first record; None if the agent died before it was written."""
        return next(_of(self.journal, Begin), None)

    @property
    def markers(self) -> tuple[EpochMarker, ...]:
        """In the order they were stamped."""
        return tuple(record.marker for record in _of(self.journal, MarkerRecord))

    @property
    def probe(self) -> ProbeReport | None:
        """The probe's report, if it got that far."""
        return next(_of(self.journal, ProbeReport), None)

    @property
    def decision(self) -> DecisionRecord | None:
        """What was decided after the probe."""
        return next(_of(self.journal, DecisionRecord), None)

    @property
    def end(self) -> JobEnd | None:
        """How it ended; None if the agent died first."""
        return next(_of(self.journal, JobEnd), None)

    def telemetry_of(self, kind: type[T]) -> tuple[T, ...]:
        """The telemetry records of one class."""
        return tuple(_of(self.telemetry, kind))


def _of(records: tuple[Any, ...], kind: type[T]) -> Iterator[T]:
    return (record for record in records if isinstance(record, kind))


def read_job(status: JobStatus, journal: bytes, telemetry: bytes, log: bytes) -> JobRecord:
    """Validate what was collected.

    Raises:
        DeviceProtocolError: A line is not a record, or a marker is missing.
    """
    records = tuple(_parse(journal, _JOURNAL, "journal"))
    for due, record in enumerate(_of(records, MarkerRecord)):
        if record.marker.seq != due:
            raise DeviceProtocolError(
                f"job {status.job_id}: marker {record.marker.seq} stands where {due} was due"
            )
    lines = tuple(_parse(telemetry, _TELEMETRY, "telemetry"))
    return JobRecord(status.state, records, lines, log.decode("utf-8", "replace"))


def _parse(data: bytes, adapter: TypeAdapter[T], name: str) -> Iterator[T]:
    """The records of complete lines; an agent that was killed may have left half a line at the end."""
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            yield adapter.validate_json(line)
        except ValidationError as error:
            raise DeviceProtocolError(
                f"{name} line {number} is no record ({sentence(error.errors()[0])}): {line[:80]!r}",
                hint="was the journal written by an agent of another version?",
            ) from None
