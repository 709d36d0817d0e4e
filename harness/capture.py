"""`Capture`: one unit of evidence, a recording with the device's markers and the clock fit between them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from device_agents.protocol import EpochMarker, Phase
from fedjoule.config import ClosedModel
from fedjoule.provenance import Provenance, Sha256, SourceRef
from fedjoule.records import StoredRecord, file_sha256, read_record, write_record
from fedjoule.runstore import read_journal
from harness.clock import ClockFit
from power.model import Finding
from power.recording import Recording, open_recording

CAPTURE_FILE = "capture.json"
MARKERS_FILE = "markers.jsonl"


class DeviceFacts(ClosedModel):
    """The device as it described itself."""

    name: str
    transport: str
    python: str = ""
    boot_id: str = ""


class HostWindow(ClosedModel):
    """A stretch of host-monotonic time, nanoseconds."""

    start_ns: int
    end_ns: int


class CaptureRecord(StoredRecord):
    """``capture.json``: what binds a recording and the markers of one job together.

    Attributes:
        capture_id: Unique name, also the source id in provenance.
        idle: When the host left the device alone, before and after the work: the baseline.
        recording_sha256: Hash of ``recording.json``, which in turn hashes the samples.
        markers_sha256: Hash of ``markers.jsonl``.
    """

    capture_id: str
    device: DeviceFacts
    workload: str
    samples: int = Field(gt=0)
    batch_size: int = Field(gt=0)
    clock: ClockFit
    idle: tuple[HostWindow, ...] = ()
    recording_sha256: Sha256
    markers_sha256: Sha256
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
        """Start and end markers joined, in host time; a phase that never ended is left out."""
        open_at: dict[tuple[Phase, int], int] = {}
        found = []
        for marker in self.markers:
            host_ns = self.record.clock.to_host_ns(marker.t_dev_ns)
            key = (marker.kind, marker.epoch)
            if marker.edge == "start":
                open_at[key] = host_ns
            elif key in open_at:
                found.append(Phased(marker.kind, marker.epoch, open_at.pop(key), host_ns))
        return found

    def provenance(self) -> Provenance:
        """What may be claimed of numbers computed from this capture."""
        base = self.recording.record.provenance(self.record.capture_id)
        source = SourceRef(id=self.record.capture_id, sha256=self.record.sha256())
        return base.model_copy(
            update={"sources": (source,), "sync_uncertainty_s": self.record.clock.sync_uncertainty_s}
        )


def write_capture(folder: Path, **facts: Any) -> CaptureRecord:
    """Bind the finished recording and the markers in ``folder`` together; never overwrites."""
    record = CaptureRecord(
        **facts,
        recording_sha256=open_recording(folder).record.sha256(),
        markers_sha256=file_sha256(folder / MARKERS_FILE),
    )
    write_record(folder / CAPTURE_FILE, record)
    return record


def open_capture(folder: Path) -> Capture:
    """Open a finished capture."""
    markers = tuple(EpochMarker.model_validate(row) for row in read_journal(folder / MARKERS_FILE))
    return Capture(folder, read_record(folder / CAPTURE_FILE, CaptureRecord), open_recording(folder), markers)
