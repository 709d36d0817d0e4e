"""``rounds/*.json``: which captures make a round, who went on, and who failed why.

Probing runs and federations store different facts of a round, so there are two kinds of record. A record is
written when its round is over: captures that no record names belong to no round.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from harness.bench.journal import JOBS
from harness.evidence.capture import Capture, open_capture, verify_capture
from joulefleet.config import ClosedModel
from joulefleet.errors import DataQualityError
from joulefleet.provenance import Sha256
from joulefleet.records import StoredRecord, read_record
from joulefleet.runstore.folder import InsidePath

ROUNDS = "rounds"
PROBING = "probing"
FEDERATION = "federation"
"""Kinds of runs that hold rounds."""

REGISTRATION = 0
"""Number of the round in which a federation measures what its devices cost."""


class ProbingRoundRecord(StoredRecord):
    """One finished round of a probing run.

    Attributes:
        number: From 1 on, in the order of the plan.
        repetition: From 1 on.
        candidates: Devices that took part.
        k: How many were to go on; None in a vanilla round.
        chosen: Who was told to go on after the probe; everybody in a vanilla round.
        reports_s: Duration of the first epoch, as each candidate reported it.
        jobs: Folder of each candidate's capture, in the order of ``candidates``.
        captures_sha256: Hash of each capture's record.
    """

    number: int = Field(ge=1)
    repetition: int = Field(ge=1)
    candidates: tuple[str, ...] = Field(min_length=1)
    k: int | None = Field(default=None, ge=1)
    chosen: tuple[str, ...]
    reports_s: dict[str, float]
    jobs: tuple[InsidePath, ...]
    captures_sha256: tuple[Sha256, ...]

    @property
    def m(self) -> int:
        """Number of candidates."""
        return len(self.candidates)


class PartRecord(ClosedModel):
    """One device's part of a federated round.

    Attributes:
        device: Its name.
        client: Its number in the partition.
        job: Folder of its capture, also in ``failed/``.
        epochs: Local epochs that it was to train if chosen.
        chosen: Whether it was told to train.
        capture_sha256: Hash of its capture's record; None if its part failed.
        failure: Why, and in which stage.
        link_bps: What its link was said to carry.
    """

    device: str
    client: int = Field(ge=0)
    job: InsidePath
    epochs: int = Field(ge=1)
    chosen: bool
    capture_sha256: Sha256 | None = None
    failure: str = ""
    link_bps: float | None = Field(default=None, gt=0)


class FederatedRoundRecord(StoredRecord):
    """One round of a federation.

    Attributes:
        number: From 1 on; 0 is the registration, which is charged to nobody.
        probed: Whether the choice was made after the first epoch.
        parts: Of all who took part in any way.
        notes: What a reader of its numbers should know.
    """

    number: int = Field(ge=0)
    probed: bool
    parts: tuple[PartRecord, ...]
    notes: tuple[str, ...] = ()


def probing_file(run: Path, name: str) -> Path:
    """Where the record of a probing round is."""
    return run / ROUNDS / f"{name}.json"


def federated_file(run: Path, number: int) -> Path:
    """Where the record of a federated round is."""
    return run / ROUNDS / f"{number:04d}.json"


def read_probing_rounds(run: Path) -> list[ProbingRoundRecord]:
    """Every finished round of a probing run, in order."""
    return [read_record(path, ProbingRoundRecord) for path in sorted((run / ROUNDS).glob("*.json"))]


def read_federated_rounds(run: Path) -> list[FederatedRoundRecord]:
    """Every round of a federation, in order, the registration left out."""
    found = [read_record(path, FederatedRoundRecord) for path in sorted((run / ROUNDS).glob("*.json"))]
    return [record for record in found if record.number != REGISTRATION]


def open_probing_round(run: Path, record: ProbingRoundRecord) -> list[Capture]:
    """The captures of a probing round, checked against its record.

    Raises:
        DataQualityError: One was changed, or shows that its device did something else than it was told.
    """
    captures = []
    for device, job, sha256 in zip(record.candidates, record.jobs, record.captures_sha256, strict=True):
        capture = _open_verified(run, job, device, sha256)
        _require_as_told(capture, went_on=device in record.chosen)
        captures.append(capture)
    return captures


def open_part(run: Path, part: PartRecord) -> Capture:
    """The capture of a part that did not fail, checked against the record.

    Raises:
        DataQualityError: It was changed.
    """
    return _open_verified(run, part.job, part.device, part.capture_sha256)


def _open_verified(run: Path, job: str, device: str, sha256: str | None) -> Capture:
    capture = open_capture(run / JOBS / job)
    changed = verify_capture(capture)
    if capture.record.sha256() != sha256 or capture.record.device.name != device:
        changed.append("capture.json")
    if changed:
        raise DataQualityError(
            f"{capture.folder}: {', '.join(changed)} changed since the round was measured",
            hint="restore the files, or measure again",
        )
    return capture


def _require_as_told(capture: Capture, *, went_on: bool) -> None:
    epochs = {phase.epoch for phase in capture.phases() if phase.epoch}
    told = capture.record.local_epochs if went_on else 1
    if epochs != set(range(1, told + 1)):
        raise DataQualityError(
            f"{capture.folder}: {len(epochs)} epochs, but the device was told to train {told}",
            hint="measure again",
        )
