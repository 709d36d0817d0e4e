"""The JSON records of a recording, and the names of its files."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from joulefleet.files import file_sha256
from joulefleet.provenance import Origin, Provenance, Sha256, SourceRef
from joulefleet.records import StoredRecord
from power.calibration import MeterCalibration
from power.meter import MeterConfig
from power.model import Finding, InstrumentInfo
from power.timebase import Timebase

RECORDING_FILE = "recording.json"
OPENING_FILE = "opening.json"
RAW_FILE = "raw.bin"
BATCH_SAMPLES = 16_384
SALVAGE_HINT = "`joulefleet meter salvage` recovers it, or `joulefleet runs salvage` inside a run"
FLUSH_S = 1.0

SECOND_HAND = ("import:", "replay:")
"""How the kind of a recording begins that no instrument made here and now: it is `imported` at most."""


class RecordingOpening(StoredRecord):
    """What was known when the recording began.

    Attributes:
        config: The meter as it was configured; its calibration stands here instead.
        calibration: The correction of the readings. It is applied when they are read
            (`power.recording.reader`); what is stored is what the instrument said.
        started_utc: Wall-clock time at the start.
        started_ns: Host-monotonic time at the same moment, which ties sample times to the wall clock.
    """

    LATER: ClassVar[frozenset[str]] = frozenset({"calibration"})

    info: InstrumentInfo
    config: MeterConfig | None = None
    calibration: MeterCalibration | None = None
    started_utc: datetime
    started_ns: int


class RecordingRecord(RecordingOpening):
    """``recording.json``.

    Attributes:
        dropped: Samples known to be lost; None where the instrument cannot tell.
        file_sha256: Hash of each data file, which makes a copy or an edit visible.
    """

    timebase: Timebase
    n_samples: int
    dropped: int | None
    findings: tuple[Finding, ...] = ()
    file_sha256: dict[str, Sha256] = Field(default_factory=dict)

    def provenance(self, source_id: str) -> Provenance:
        """What may be claimed of numbers computed from this recording."""
        seen = self.n_samples + (self.dropped or 0)
        imported = self.info.kind.startswith(SECOND_HAND)
        origin = Origin.EMULATED if self.info.emulated else Origin.IMPORTED if imported else Origin.MEASURED
        return Provenance(
            origin=origin,
            sources=(SourceRef(id=source_id, sha256=self.sha256()),),
            instrument=self.info.instrument(),
            calibration_sha256=None if self.calibration is None else self.calibration.sha256(),
            loss_fraction=None if self.dropped is None else self.dropped / max(1, seen),
        )


def data_hashes(folder: Path) -> dict[str, str]:
    """The hash of every data file of a recording."""
    names = ("samples.arrows", "blocks.parquet", "arrivals.parquet", RAW_FILE)
    return {name: file_sha256(folder / name) for name in names if (folder / name).exists()}
