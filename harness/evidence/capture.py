"""`Capture`: one unit of evidence, a recording with the device's markers and the clock fit between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError

from device_agents import HostTimes
from device_agents.protocol import EpochMarker, Phase
from harness.evidence.clock_fit import BurstSeen, ClockFit, PingObservation
from harness.evidence.first_epoch import with_disguised
from harness.evidence.unaccounted import Unaccounted, unaccounted
from joulefleet.config import ClosedModel, sentence
from joulefleet.errors import DataQualityError, JoulefleetError, describe
from joulefleet.files import file_sha256, storage_error
from joulefleet.provenance import Provenance, Sha256, SourceRef
from joulefleet.records import StoredRecord, read_record, write_record
from joulefleet.runstore import SalvageReport, read_journal, read_table, salvage_run
from joulefleet.runstore.columns import Columns
from power import Finding
from power.profile import Battery, StatedSpread
from power.recording import (
    OPENING_FILE,
    RECORDING_FILE,
    Recording,
    open_recording,
    salvage_recording,
    verify_hashes,
)

if TYPE_CHECKING:
    import pyarrow as pa


CAPTURE_FILE = "capture.json"
MARKERS_FILE = "markers.jsonl"
TELEMETRY = "telemetry"
"""Name of the table: ``t_dev_ns``, then one column per quantity and part: ``temperature_c[cpu-thermal]``."""


class DeviceFacts(ClosedModel):
    """The device: as it described itself, and what the inventory knows about it.

    Attributes:
        cpus: Cores that the device says it has; None if it did not say.
        governor: Frequency governor of the first core, where it can be read.
        product: What it is, e.g. ``Pixel 5`` or ``Raspberry Pi 5 Model B``.
        battery: Capacity and charging power, from the inventory.
        facts: Anything else, e.g. ``soc``, ``system``, ``machine``.
    """

    name: str
    transport: str
    python: str = ""
    boot_id: str = ""
    cpus: int | None = Field(default=None, ge=1)
    governor: str = ""
    product: str = ""
    battery: Battery | None = None
    facts: dict[str, str] = Field(default_factory=dict)


class HostWindow(ClosedModel):
    """A stretch of host-monotonic time, nanoseconds."""

    start_ns: int
    end_ns: int


class Background(ClosedModel):
    """The load beside the training, all zero for none.

    Attributes:
        name: What the plan calls it.
        kind: ``cpu`` or ``memory``; ``none`` without load.
        cores: Number of workers.
        cpu_share: Of one core, that each worker asks for.
        load: Share of the whole device's processors that is asked for, 0 to 1.
        used_cpu_s: Processor time that the workers got, all together; None if they did not report.
        wall_s: Their running time, all together.
    """

    name: str = "none"
    kind: Literal["none", "cpu", "memory"] = "none"
    cores: int = Field(default=0, ge=0)
    cpu_share: float = Field(default=0.0, ge=0, le=1)
    load: float = Field(default=0.0, ge=0, le=1)
    used_cpu_s: float | None = Field(default=None, ge=0)
    wall_s: float | None = Field(default=None, ge=0)


class Temperature(ClosedModel):
    """The hottest sensor of the device over the round, degrees Celsius."""

    first_c: float
    last_c: float
    max_c: float


class CaptureSession(ClosedModel):
    """The session that a run made a capture in. When that was, the recording says.

    Attributes:
        number: From 1 on, as the run counts.
        planned: How many sessions the plan asks for.
        apart_s: How far apart it asks for.
        stated_spread: What the plan states about the spread between sessions.
    """

    number: int = Field(ge=1)
    planned: int = Field(default=1, ge=1)
    apart_s: float | None = Field(default=None, ge=0)
    stated_spread: StatedSpread | None = None


class CaptureRecord(StoredRecord):
    """``capture.json``: what binds a recording and the markers of one job together.

    Attributes:
        capture_id: Unique name, also the source id in provenance.
        workload: ``softmax``, or a task of `device_agents.workloads.tasks`; a profile calls it the model.
        dataset: The data set that the task is named for.
        synthetic_data: Whether the samples were random ones of the same shape.
        threads: Of the backend; 0 if it was left to the backend, None in captures that do not say.
        local_epochs: Epochs of the round, the probe included; 0 in captures of several rounds.
        warmup_epochs: Trained before the probe, as phase ``warmup``; they count nowhere.
        repetition: From 1 on within its cell (device, workload, backend, background) and session.
        session: Which session of its run; None in captures that do not say.
        attempt: From 1 on; earlier ones are in ``failed/``.
        throttled_epochs: Epochs in which the device was slowed down; they are not averaged in.
        throttling_known: Whether the device reports throttling, in every epoch.
        idle: When the host left the device alone, before and after the work: the baseline.
        pings: Every clock exchange: with the recording and the markers, all that the clock fit was made of.
        bursts: What became of each pattern in the power trace.
        host_times: When the host said and heard what during the job; None in captures that do not say.
        suspended_ns: How long the device slept during the round; None if it cannot tell.
        epochs_cpu_s: Processor time of the training process in its epochs, all together; None if not known.
        random_operations: How the model's dropout and other draws were made on the device, as it says; empty
            if the model has none, None in captures that do not say.
        recording_sha256: Hash of ``recording.json``, which in turn hashes the samples.
        markers_sha256: Hash of ``markers.jsonl``.
        telemetry_sha256: Hash of ``telemetry.parquet``; None if there is none.
        task_sha256: Hash of what the device was sent of a task of the user's own, its file included where
            that was run there; None for one of ours.
    """

    LATER = frozenset(
        {"threads", "epochs_cpu_s", "host_times", "session", "random_operations", "task_sha256"}
    )

    capture_id: str
    device: DeviceFacts
    workload: str
    dataset: str = "synthetic"
    synthetic_data: bool = True
    backend: str = "numpy"
    samples: int = Field(gt=0)
    batch_size: int = Field(gt=0)
    threads: int | None = Field(default=None, ge=0)
    local_epochs: int = Field(default=0, ge=0)
    warmup_epochs: int = Field(default=0, ge=0)
    background: Background = Background()
    repetition: int = Field(default=1, ge=1)
    session: CaptureSession | None = None
    attempt: int = Field(default=1, ge=1)
    seed: int = Field(default=0, ge=0)
    throttled_epochs: tuple[int, ...] = ()
    throttling_known: bool = False
    temperature: Temperature | None = None
    clock: ClockFit
    idle: tuple[HostWindow, ...] = ()
    pings: tuple[PingObservation, ...] = ()
    bursts: tuple[BurstSeen, ...] = ()
    host_times: HostTimes | None = None
    suspended_ns: int | None = None
    epochs_cpu_s: float | None = Field(default=None, ge=0)
    random_operations: str | None = None
    recording_sha256: Sha256
    markers_sha256: Sha256
    telemetry_sha256: Sha256 | None = None
    task_sha256: Sha256 | None = None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Phased:
    """One phase of a capture in host time."""

    phase: Phase
    epoch: int
    start_ns: int
    end_ns: int

    @property
    def duration_s(self) -> float:
        """Seconds."""
        return (self.end_ns - self.start_ns) * 1e-9


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture opened for reading."""

    folder: Path
    record: CaptureRecord
    recording: Recording
    markers: tuple[EpochMarker, ...]

    def phases(self) -> list[Phased]:
        """See `phases_of`."""
        return phases_of(self.markers, self.record.clock)

    def unaccounted(self) -> tuple[Unaccounted, ...]:
        """Host time that its markers leave over or disguise; nothing for captures that do not say."""
        record = self.record
        if record.host_times is None:
            return ()
        trips_ns = [ping.received_ns - ping.sent_ns for ping in record.pings]
        phases, times = self.phases(), record.host_times
        left = unaccounted(phases, times, trips_ns)
        return with_disguised(left, phases, times, self.recording, record.idle)

    def telemetry(self) -> pa.Table | None:
        """The device's telemetry on its own clock; None if there is none."""
        if self.record.telemetry_sha256 is None:
            return None
        import pyarrow as pa

        columns = Columns(pa.schema([("t_dev_ns", pa.int64())]), others=pa.float64())
        return read_table(self.folder, TELEMETRY, columns)

    def provenance(self) -> Provenance:
        """What may be claimed of numbers computed from this capture."""
        base = self.recording.provenance(self.record.capture_id)
        source = SourceRef(id=self.record.capture_id, sha256=self.record.sha256())
        return base.model_copy(
            update={"sources": (source,), "sync_uncertainty_s": self.record.clock.sync_uncertainty_s}
        )


def phases_of(markers: Sequence[EpochMarker], clock: ClockFit) -> list[Phased]:
    """Start and end markers joined, in host time; a phase that never ended is left out."""
    open_at: dict[tuple[Phase, int], int] = {}
    found = []
    for marker in markers:
        host_ns = clock.to_host_ns(marker.t_dev_ns)
        key = (marker.kind, marker.epoch)
        if marker.edge == "start":
            open_at[key] = host_ns
        elif key in open_at:
            found.append(Phased(marker.kind, marker.epoch, open_at.pop(key), host_ns))
    return found


def write_capture(folder: Path, **facts: Any) -> CaptureRecord:
    """Bind the finished recording, the markers and the telemetry in ``folder``; never overwrites."""
    telemetry = folder / f"{TELEMETRY}.parquet"
    record = CaptureRecord(
        **facts,
        telemetry_sha256=file_sha256(telemetry) if telemetry.exists() else None,
        recording_sha256=open_recording(folder).record.sha256(),
        markers_sha256=file_sha256(folder / MARKERS_FILE),
    )
    write_record(folder / CAPTURE_FILE, record)
    return record


def verify_capture(capture: Capture) -> list[str]:
    """Names of files that are no longer what the capture was made of."""
    record, folder = capture.record, capture.folder
    problems = list(verify_hashes(capture.recording))
    if capture.recording.record.sha256() != record.recording_sha256:
        problems.append(RECORDING_FILE)
    if file_sha256(folder / MARKERS_FILE) != record.markers_sha256:
        problems.append(MARKERS_FILE)
    telemetry = folder / f"{TELEMETRY}.parquet"
    if record.telemetry_sha256 is not None and (
        not telemetry.exists() or file_sha256(telemetry) != record.telemetry_sha256
    ):
        problems.append(telemetry.name)
    return problems


def is_whole(folder: Path) -> bool:
    """Whether a folder holds a capture that belongs together."""
    if not (folder / CAPTURE_FILE).exists():
        return False
    try:
        capture = open_capture(folder)
    except JoulefleetError:
        return False
    return (
        capture.recording.record.sha256() == capture.record.recording_sha256
        and file_sha256(folder / MARKERS_FILE) == capture.record.markers_sha256
    )


def open_capture(folder: Path) -> Capture:
    """Open a finished capture.

    Raises:
        StorageError: A file is missing or cannot be read.
        DataQualityError: A line of the markers is none.
    """
    record = read_record(folder / CAPTURE_FILE, CaptureRecord)
    return Capture(folder, record, open_recording(folder), tuple(_read_markers(folder / MARKERS_FILE)))


def _read_markers(path: Path) -> Iterator[EpochMarker]:
    try:
        rows = list(read_journal(path))
    except OSError as error:
        raise storage_error(path, error) from error
    for number, row in enumerate(rows, start=1):
        try:
            yield EpochMarker.model_validate(row)
        except ValidationError as error:
            raise DataQualityError(
                f"{path}:{number}: no marker ({sentence(error.errors()[0])})",
                hint="the file was changed after it was written: take it from a backup, or measure again",
            ) from None


def salvage(path: Path) -> SalvageReport:
    """Recover everything a killed run had written; see `joulefleet.runstore.salvage_run`.

    A recording that is damaged is left as it is and named in the report: it must not cost the others.
    """
    report = salvage_run(path)
    for opening in sorted(path.rglob(OPENING_FILE)):
        try:
            record = salvage_recording(opening.parent)
        except Exception as error:  # whatever a damaged file makes of its reader
            report.problems[str(opening.parent.relative_to(path))] = describe(error)
            continue
        if record is not None:
            report.tables[str((opening.parent / "recording.json").relative_to(path))] = record.n_samples
    return report
