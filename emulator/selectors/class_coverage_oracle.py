"""Oracle: cohorts that cover all classes, by the devices' true label histograms.

A yardstick for what data-aware selectors can do about label skew, though no proven bound: it covers classes
one after the other and balances them no further. It uses what no server knows, so it is ``privileged`` and
shown as such. The cohort grows device by device: of the classes that others still hold, the one with the
fewest samples in the cohort so far is next, and a device is drawn in proportion to how many samples of that
class it holds; ties at random. The draw keeps it from choosing the same devices every round. No switches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from emulator.round.view import ServerView
from emulator.selectors.base import Family, Selector
from emulator.selectors.parts.draws import draw_weighted, log_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ClassCoverageOracle(Selector):
    """One class after another, the scarcest first."""

    name: ClassVar[str] = "class_coverage_oracle"
    family: ClassVar[Family] = Family.CONTROL
    needs: ClassVar[frozenset[str]] = frozenset({"label_histogram"})
    privileged: ClassVar[bool] = True

    def select(
        self, view: ServerView, candidates: NDArray[np.int64], k: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Grow the cohort to ``k``."""
        samples = np.nan_to_num(view.label_histogram[candidates]) * view.data_size[candidates, np.newaxis]
        # argmin takes the first of equals: with fewer devices than classes the same ones would always lack.
        samples = samples[:, rng.permutation(samples.shape[1])]
        covered = np.zeros(samples.shape[1])
        holders = np.count_nonzero(samples, axis=0)
        free = np.ones(len(candidates), dtype=bool)
        chosen = []
        for _ in range(min(k, len(candidates))):
            left = np.flatnonzero(free)
            scarcest = int(np.argmin(np.where(holders > 0, covered, np.inf)))
            one = left[draw_weighted(rng, log_of(samples[left, scarcest]), 1)[0]]
            free[one] = False
            covered += samples[one]
            holders -= samples[one] > 0
            chosen.append(one)
        return candidates[np.array(chosen, dtype=np.int64)]
