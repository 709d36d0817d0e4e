"""`Motion`: which devices came and went, left their work, or ran low, as far as a run has got."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.fleet.conditions import Ids

THERE, AWAY, LEFT, LOW = (np.uint8(1 << bit) for bit in range(4))
MOTION = ("devices_changed", "devices_left", "devices_low")
"""Columns of the table of rounds, as far as the run has got: devices that were eligible at one check-in and
not at another, that left during their work, and whose battery ended or kept them away."""


class Motion:
    """A byte per device; only what happened at check-ins and in rounds counts."""

    def __init__(self, devices: int) -> None:
        self._seen = np.zeros(devices, np.uint8)

    def check_in(self, eligible: NDArray[np.bool_], off: Ids) -> None:
        """Who is there, and whose battery is empty."""
        self._seen |= AWAY - eligible.view(np.uint8)
        self._seen[off] |= LOW

    def ended(self, left: Ids, ran_out: Ids) -> None:
        """Who was taken away from its work, and who ran out at it."""
        self._seen[left] |= LEFT
        self._seen[ran_out] |= LOW

    def counts(self) -> dict[str, int]:
        """How many devices, by the names in `MOTION`."""
        both = THERE | AWAY
        which = ((self._seen & both) == both, self._seen & LEFT, self._seen & LOW)
        return {name: int(np.count_nonzero(some)) for name, some in zip(MOTION, which, strict=True)}

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return {"seen": self._seen.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self._seen[...] = state["seen"]
