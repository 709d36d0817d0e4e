"""Oracles: they choose by what no server knows, so they are ``privileged`` and shown as such. No switches.

They show how far a method could get. The speed and the energy oracle take the K devices that would finish
this round first, or with the least energy, as things are now; ties by device number. That is all but a lower
bound for R_T and R_E: every local epoch is taken to cost what one would now, and nobody foresees how the load
will change or who will leave.

The class-coverage oracle forms cohorts that cover all classes, by the devices' true label histograms. It is a
yardstick for what data-aware selectors can do about label skew, though no proven bound: it covers classes one
after the other and balances them no further. The cohort grows device by device: of the classes that others
still hold, the one with the fewest samples in the cohort so far is next, and a device is drawn in proportion
to how many samples of that class it holds; ties at random. The draw keeps it from choosing the same devices
every round.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from emulator.round.selector import Family, Selector
from emulator.round.view import Ids, ServerView
from emulator.selectors.parts.draws import draw_weighted, log_of, top_k


class _Cheapest(Selector):
    """The K devices for which this round would take the least."""

    family: ClassVar[Family] = Family.CONTROL
    privileged: ClassVar[bool] = True
    unit: ClassVar[str]

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """The ``k`` cheapest rounds."""
        comm = getattr(view, f"true_comm_{self.unit}")[candidates]
        epoch = getattr(view, f"true_epoch_{self.unit}")[candidates]
        return candidates[top_k(-(comm + view.local_epochs * epoch), k)]


class EnergyOracle(_Cheapest):
    """The least energy, R_E."""

    name: ClassVar[str] = "energy_oracle"
    needs: ClassVar[frozenset[str]] = frozenset({"true_epoch_j", "true_comm_j"})
    unit: ClassVar[str] = "j"


class SpeedOracle(_Cheapest):
    """The shortest round, R_T."""

    name: ClassVar[str] = "speed_oracle"
    needs: ClassVar[frozenset[str]] = frozenset({"true_epoch_s", "true_comm_s"})
    unit: ClassVar[str] = "s"


class ClassCoverageOracle(Selector):
    """One class after another, the scarcest first."""

    name: ClassVar[str] = "class_coverage_oracle"
    family: ClassVar[Family] = Family.CONTROL
    needs: ClassVar[frozenset[str]] = frozenset({"label_histogram"})
    privileged: ClassVar[bool] = True

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
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
