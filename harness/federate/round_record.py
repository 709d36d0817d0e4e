"""``rounds/*.json``: which captures make a federated round, who went on, and who failed why."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from harness.evidence.capture import Capture, open_capture, verify_capture
from harness.rounds.bench_run.runner import JOBS
from harness.rounds.record import ROUNDS
from joulefleet.config import ClosedModel
from joulefleet.errors import DataQualityError
from joulefleet.provenance import Sha256
from joulefleet.records import StoredRecord, read_record

KIND = "federation"
"""Of a run that holds such rounds."""
REGISTRATION = 0


class PartRecord(ClosedModel):
    """One device's part of a round.

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
    job: str
    epochs: int = Field(ge=1)
    chosen: bool
    capture_sha256: Sha256 | None = None
    failure: str = ""
    link_bps: float | None = Field(default=None, gt=0)


class FederatedRoundRecord(StoredRecord):
    """One round.

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


def federated_file(run: Path, number: int) -> Path:
    """Where a round's record is."""
    return run / ROUNDS / f"{number:04d}.json"


def read_federated(run: Path) -> list[FederatedRoundRecord]:
    """Every round of a run, in order, the registration left out."""
    found = [read_record(path, FederatedRoundRecord) for path in sorted((run / ROUNDS).glob("*.json"))]
    return [record for record in found if record.number != REGISTRATION]


def open_part(run: Path, part: PartRecord) -> Capture:
    """The capture of a part that did not fail, checked against the record.

    Raises:
        DataQualityError: It was changed.
    """
    capture = open_capture(run / JOBS / part.job)
    changed = verify_capture(capture)
    if capture.record.sha256() != part.capture_sha256:
        changed.append("capture.json")
    if changed:
        raise DataQualityError(
            f"{capture.folder}: {', '.join(changed)} changed since the round was measured",
            hint="restore the files, or measure again",
        )
    return capture
