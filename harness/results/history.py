"""What one device needed, run after run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.inventory import nearest
from harness.profiles.library import Stored, stored_profiles
from joulefleet.errors import ConfigError, DataQualityError
from power.profile import Quantity

EARLIEST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One profile of the device; ``quantity`` is None if that was not measured."""

    stored: Stored
    quantity: Quantity | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for ``--json``."""
        profile = self.stored.profile
        return {
            "id": self.stored.id,
            "run": self.stored.run or None,
            "created_utc": self.stored.created_utc,
            "device": profile.device,
            "task": profile.task,
            "backend": profile.backend,
            "origin": profile.origin.value,
            "quantity": self.quantity.model_dump() if self.quantity else None,
        }


def device_history(root: Path, device: str, *, task: str | None, place: str) -> list[HistoryRow]:
    """Every profile of a device in the runs below a folder, oldest first, task by task.

    Raises:
        ConfigError: No run has a profile of it, or no such quantity is known.
    """
    everything = stored_profiles(root)
    found = [one for one in everything if one.profile.device == device]
    if not found:
        names = sorted({one.profile.device for one in everything})
        raise ConfigError(
            f"no profile of a device {device!r} in the runs of {root}", hint=nearest(device, names)
        )
    found = [one for one in found if task in (None, one.profile.task)]
    if not found:
        raise DataQualityError(f"no profile of {device} for the task {task!r}")
    known = {name for one in found for name in one.profile.quantities()}
    if place not in known:
        raise ConfigError(f"no quantity {place!r}", hint=nearest(place, sorted(known)))
    rows = [HistoryRow(one, one.profile.quantities().get(place)) for one in found]
    return sorted(rows, key=lambda row: (row.stored.profile.task, row.stored.profile.backend, _began(row)))


def _began(row: HistoryRow) -> datetime:
    return row.stored.created_utc or EARLIEST
