"""EAFL: Oort's utility times the charge that is left.

Implements the idea of Arouj and Abdelmoniem 2022 (arXiv 2208.04505): prefer devices with full batteries, so
that fewer drop out. Every score and exploration weight of Oort is multiplied by the state of charge, 0 to
1, at the device's last check-in.

Switches: those of Oort.

Deviations: the publication's own weighting of both terms was not available in full text; the product is the
plainest reading of its abstract. A device that reports no battery counts as full (mains).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from emulator.round.selector import Family
from emulator.round.view import ServerView
from emulator.selectors.oort.selector import Oort


class Eafl(Oort):
    """Battery-aware Oort."""

    name: ClassVar[str] = "eafl"
    family: ClassVar[Family] = Family.CONTROL
    paper: ClassVar[str] = "Arouj and Abdelmoniem, 2022, arXiv 2208.04505"
    deviations: ClassVar[str] = "product of Oort's score and the state of charge"
    needs: ClassVar[frozenset[str]] = Oort.needs | {"battery"}

    def factor(self, view: ServerView) -> NDArray[np.float64]:
        """The state of charge."""
        return np.where(np.isnan(view.battery), 1.0, view.battery)
