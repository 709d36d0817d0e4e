"""``rounds/*.json``: which captures make a round, and who went on. Written when all of them are whole."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from harness.evidence.capture import Capture, open_capture, verify_capture
from harness.rounds.bench_run.runner import JOBS
from joulefleet.errors import DataQualityError
from joulefleet.provenance import Sha256
from joulefleet.records import StoredRecord, read_record

ROUNDS = "rounds"


class RoundRecord(StoredRecord):
    """One finished round.

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
    jobs: tuple[str, ...]
    captures_sha256: tuple[Sha256, ...]

    @property
    def m(self) -> int:
        """Number of candidates."""
        return len(self.candidates)


def round_file(run: Path, name: str) -> Path:
    """Where a round's record is."""
    return run / ROUNDS / f"{name}.json"


def read_rounds(run: Path) -> list[RoundRecord]:
    """Every finished round of a run, in order."""
    return [read_record(path, RoundRecord) for path in sorted((run / ROUNDS).glob("*.json"))]


def open_round(run: Path, record: RoundRecord) -> list[Capture]:
    """The captures of a round, checked against its record.

    Raises:
        DataQualityError: One was changed, or shows that its device did something else than it was told.
    """
    captures = []
    for device, job, sha256 in zip(record.candidates, record.jobs, record.captures_sha256, strict=True):
        capture = open_capture(run / JOBS / job)
        changed = verify_capture(capture)
        if capture.record.sha256() != sha256 or capture.record.device.name != device:
            changed.append("capture.json")
        if changed:
            raise DataQualityError(
                f"{capture.folder}: {', '.join(changed)} changed since the round was measured",
                hint="restore the files, or measure again",
            )
        _require_as_told(capture, went_on=device in record.chosen)
        captures.append(capture)
    return captures


def _require_as_told(capture: Capture, *, went_on: bool) -> None:
    epochs = {phase.epoch for phase in capture.phases() if phase.epoch}
    told = capture.record.local_epochs if went_on else 1
    if epochs != set(range(1, told + 1)):
        raise DataQualityError(
            f"{capture.folder}: {len(epochs)} epochs, but the device was told to train {told}",
            hint="measure again",
        )
