"""What servers of a round have in common: devices that meet, each from its own thread, and may be lost."""

from __future__ import annotations

import threading
from collections.abc import Sequence

POLL_S = 0.2
"""How soon a waiting device notices that its job has to end; decisions wake it at once."""


class Gathering:
    """The state of a round's server; whoever reads or changes it holds ``_changed``.

    Args:
        devices: Who takes part.
        start_timeout_s: How long the first to be ready waits for the others.
        report_timeout_s: How long the first to report waits for the others.
    """

    def __init__(self, devices: Sequence[str], *, start_timeout_s: float, report_timeout_s: float) -> None:
        self._devices = frozenset(devices)
        self._start_timeout_s = start_timeout_s
        self._report_timeout_s = report_timeout_s
        self._changed = threading.Condition()
        self._ready: set[str] = set()
        self._gone: set[str] = set()
        self._began = False
        self._start_by_s: float | None = None
        self._report_by_s: float | None = None

    def lost(self, device: str) -> None:
        """A device has failed; nobody waits for it any longer."""
        with self._changed:
            self._gone.add(device)
            self._changed.notify_all()
