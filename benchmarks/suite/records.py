"""What is kept of a run of the benchmarks: one record per module, and all of them as they are published."""

from __future__ import annotations

from pathlib import Path

from benchmarks.result import Figure
from joulefleet.config import ClosedModel
from joulefleet.records import StoredRecord, read_record

REPOSITORY = Path(__file__).resolve().parent.parent.parent
MEASURED = REPOSITORY / "build" / "benchmarks"
"""One file per module, written when the module has finished."""
PUBLISHED = REPOSITORY / "docs" / "results" / "benchmarks.json"
PAGE = REPOSITORY / "docs" / "benchmarks.md"


class Machine(ClosedModel):
    """Where something was measured.

    Attributes:
        cpu: Its model, as the system names it.
        cores: How many of them may be used.
        memory_gb: Main memory.
        system: Kernel and architecture.
        python: Version.
        packages: Versions of what the figures depend on.
        peers: Versions of other people's packages, by their environment.
    """

    cpu: str
    cores: int
    memory_gb: float
    system: str
    python: str
    packages: dict[str, str]
    peers: dict[str, dict[str, str]]


class ModuleResult(StoredRecord):
    """One benchmark module.

    Attributes:
        module: Its name.
        measured_at: When it ended, UTC.
        commit: Of the code; ``+`` at its end if files were changed.
        full: Whether all repeats were made (``JOULEFLEET_BENCH=full``).
        took_s: Time on the wall.
        load_before: Load average over a minute before it began.
        load_after: Likewise when it ended.
        figures: What it found.
        error: Why it found nothing, if so.
        machine: Where.
    """

    module: str
    measured_at: str
    commit: str
    full: bool
    took_s: float
    load_before: float
    load_after: float
    figures: tuple[Figure, ...] = ()
    error: str = ""
    machine: Machine


class Published(StoredRecord):
    """All modules of a run."""

    modules: tuple[ModuleResult, ...]


def measured(folder: Path = MEASURED) -> list[ModuleResult]:
    """The results that lie in a folder, by name."""
    return [read_record(path, ModuleResult) for path in sorted(folder.glob("*.json"))]
