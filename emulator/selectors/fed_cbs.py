"""Fed-CBS: cohorts whose combined labels are balanced, drawn one device after another.

Implements Zhang et al., ICML 2023 (arXiv 2209.15245). QCID(S) = sum over classes b of
(q_b - 1/B)^2, q the label shares of all samples in S together. In round t the first device is drawn in
proportion to 1/QCID({c})^beta_1 + lambda sqrt(3 ln t / (2 n_c)), n_c how often c was chosen (at least 1), and
the m-th in proportion to 1/QCID(S + c)^beta_m, with beta_m = m as in the paper's experiments.

Two registered methods:

- ``fed_cbs``: label shares are estimated from the output bias of each device's last update (see
  `emulator.selectors.parts.estimates`); a device that sent none counts as balanced.
  Devices without data, and those that failed lately, are left out while there are others
  (`emulator.selectors.parts.estimates`); so they are below.
- ``fed_cbs_exact``: true histograms, which the publication gathers under homomorphic encryption. Nothing of
  the kind is reported here, so this one is ``privileged`` and shown as such.

Switches:
    exploration: lambda; 10 as in the published experiments.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from emulator.round.selector import Family
from emulator.round.view import Ids, ServerView
from emulator.selectors.parts.draws import draw_weighted
from emulator.selectors.parts.estimates import GrownCohort, label_shares
from emulator.selectors.parts.options import within

PERFECT = 1e-12
"""QCID at and below which a cohort is as good as balanced; keeps its inverse finite."""


class FedCbs(GrownCohort):
    """Class-balanced sampling on estimated label shares."""

    name: ClassVar[str] = "fed_cbs"
    family: ClassVar[Family] = Family.CONTROL
    paper: ClassVar[str] = "Zhang et al., ICML 2023, arXiv 2209.15245"
    deviations: ClassVar[str] = "label shares estimated from output-bias changes instead of encrypted sums"
    needs: ClassVar[frozenset[str]] = frozenset({"bias_delta", "times_chosen", "failures"})

    def __init__(self, *, exploration: float = 10.0) -> None:
        within(self.name, "exploration", exploration, 0.0, 1e9)
        self.exploration = exploration

    def grown(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """Device by device."""
        samples = self.shares(view)[candidates] * view.data_size[candidates, np.newaxis]
        # Of a million devices, few have reported anything yet: what is the same for many is worked out once.
        distinct, kind = np.unique(samples, axis=0, return_inverse=True)
        bonus = np.sqrt(3 * math.log(view.round) / (2 * np.maximum(view.times_chosen[candidates], 1)))
        cohort = np.zeros(samples.shape[1])
        left = np.arange(len(candidates))
        chosen = []
        for m in range(1, k + 1):
            log_weights = (-m * np.log(qcid(cohort + distinct) + PERFECT))[kind[left]]
            if m == 1:
                log_weights = np.log(np.exp(log_weights) + self.exploration * bonus[left])
            position = draw_weighted(rng, log_weights, 1)[0]
            cohort += samples[left[position]]
            chosen.append(left[position])
            left = np.delete(left, position)
        return candidates[np.array(chosen, dtype=np.int64)]

    def shares(self, view: ServerView) -> NDArray[np.float64]:
        """Label shares, one row per device."""
        return label_shares(view.bias_delta)


class FedCbsExact(FedCbs):
    """Class-balanced sampling on true label shares."""

    name: ClassVar[str] = "fed_cbs_exact"
    deviations: ClassVar[str] = "true histograms in the clear instead of encrypted sums"
    needs: ClassVar[frozenset[str]] = frozenset({"label_histogram", "times_chosen", "failures"})
    privileged: ClassVar[bool] = True

    def shares(self, view: ServerView) -> NDArray[np.float64]:
        """Label shares, one row per device."""
        return np.nan_to_num(view.label_histogram)


def qcid(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Class imbalance of each row of sample counts; that of an empty row is 1/B, as of no share at all."""
    total = samples.sum(axis=1, keepdims=True)
    shares = np.divide(samples, total, out=np.zeros_like(samples), where=total > 0)
    return np.asarray(((shares - 1.0 / samples.shape[1]) ** 2).sum(axis=1))
