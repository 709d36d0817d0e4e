"""The user's tool: inventory, plans, runner, clock alignment, profiles, reports, command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.results.stored_run import StoredRun

__all__ = ["open_run"]


def open_run(path: str | Path) -> StoredRun:
    """A run as data frames: ``harness.open_run("runs/...").epochs()``.

    Raises:
        StorageError: There is no run there.
    """
    from harness.results.stored_run import StoredRun  # not at the top: the command line imports this package

    return StoredRun(Path(path))
