"""The runs that the lab may show: those right below its roots, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joulefleet.errors import StorageError
from joulefleet.runstore import RunStore
from joulefleet.runstore.run import RUN_FILE, read_run
from power.recording import OPENING_FILE, RECORDING_FILE

MOST_RUNS = 500
MOST_RECORDINGS = 2_000


@dataclass(frozen=True, slots=True)
class Folders:
    """Where runs are.

    Attributes:
        roots: Each a folder of runs.
    """

    roots: tuple[Path, ...]

    def runs(self) -> list[dict[str, Any]]:
        """Every run, the newest first; one that cannot be read is listed with its problem."""
        found = [
            {
                **summary.as_dict(),
                "root": place,
                "run": summary.path.name,
                "has_page": _has_page(summary.path),
            }
            for place, root in enumerate(self.roots)
            for summary in RunStore(root).list()
        ]
        return sorted(found, key=lambda one: str(one["run"]), reverse=True)[:MOST_RUNS]

    def run(self, root: int, name: str) -> Path:
        """The folder of a run.

        Raises:
            StorageError: There is none, or something in it leads out of it.
        """
        if 0 <= root < len(self.roots) and name and "/" not in name and not name.startswith("."):
            path = self.roots[root] / name
            if (path / RUN_FILE).is_file():
                read_run(path)
                return path
        raise StorageError("no such run")

    def recording(self, root: int, name: str, inside: str) -> Path:
        """The folder of one of its recordings.

        Raises:
            StorageError: There is none.
        """
        run = self.run(root, name)
        known = {str(folder.relative_to(run)): folder for folder in recordings(run)}
        if inside not in known:
            raise StorageError("no such recording")
        return known[inside]


def recordings(run: Path) -> list[Path]:
    """Folders of a run in which a recording is, or is being made; failed attempts last."""
    found = sorted(file.parent for file in run.rglob(OPENING_FILE))
    return sorted(found, key=lambda folder: "failed" in folder.relative_to(run).parts)[:MOST_RECORDINGS]


def is_finished(recording: Path) -> bool:
    """Whether its writer has closed it."""
    return (recording / RECORDING_FILE).is_file()


def _has_page(run: Path) -> bool:
    return (run / "report.html").is_file()
