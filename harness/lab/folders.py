"""The runs that the lab may show: those right below its roots, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from joulefleet.errors import StorageError
from joulefleet.runstore import RunSummary
from joulefleet.runstore.notes import NOTES_FILE
from joulefleet.runstore.run import RUN_FILE, is_locked, read_run
from joulefleet.runstore.store import summarise
from power.recording import OPENING_FILE, RECORDING_FILE

MOST_RUNS = 500
MOST_RECORDINGS = 2_000
_LINK = "a link: what it leads to is shown if its own folder is a --root"


class Folders:
    """Where runs are.

    Args:
        roots: Each a folder of runs.
    """

    def __init__(self, roots: tuple[Path, ...]) -> None:
        self.roots = roots
        self._known: dict[Path, tuple[tuple[int, ...], RunSummary]] = {}

    def runs(self, words: Sequence[str] = ()) -> dict[str, Any]:
        """Runs in which all words occur, the newest first; what cannot be read is listed with its problem."""
        names = sorted(
            ((name, place) for place, root in enumerate(self.roots) for name in _below(root)),
            reverse=True,
        )
        rows = (self._row(place, name) for name, place in names)
        found = list(islice((one for one in rows if _has(one, words)), MOST_RUNS))
        return {"runs": found, "all": len(names), "roots": [str(root) for root in self.roots]}

    def _row(self, place: int, name: str) -> dict[str, Any]:
        path = self.roots[place] / name
        page = (path / "report.html").is_file()
        return {**self._summary(path).as_dict(), "root": place, "run": name, "has_page": page}

    def _summary(self, path: Path) -> RunSummary:
        """What did not change is not read again: a thousand runs are listed every three seconds."""
        if path.is_symlink():
            return RunSummary(path, None, alive=False, problem=_LINK)
        key = (*_state(path / RUN_FILE), *_state(path / NOTES_FILE))
        known = self._known.get(path)
        if known is None or known[0] != key:
            known = self._known[path] = key, summarise(path)
        summary = known[1]
        # Whether its writer lives, no file says.
        return replace(summary, alive=is_locked(path)) if summary.alive else summary

    def run(self, root: int, name: str) -> Path:
        """The folder of a run.

        Raises:
            StorageError: There is none, or something in it leads out of it.
        """
        if 0 <= root < len(self.roots) and name and "/" not in name and not name.startswith("."):
            path = self.roots[root] / name
            if path.is_symlink():
                raise StorageError(_LINK)
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


def _below(root: Path) -> list[str]:
    try:
        with os.scandir(root) as entries:  # which knows what is a folder without asking for each
            return [one.name for one in entries if not one.name.startswith(".") and one.is_dir()]
    except FileNotFoundError:  # no run yet
        return []


def _has(row: dict[str, Any], words: Sequence[str]) -> bool:
    tags = " ".join(f"#{tag}" for tag in row["tags"])
    text = f"{row['run']} {row['kind']} {row['state']} {tags}".lower()
    return all(word in text for word in words)


def _state(path: Path) -> tuple[int, ...]:
    try:
        facts = path.lstat()
    except OSError:
        return ()
    return facts.st_ino, facts.st_size, facts.st_mtime_ns
