"""FedRank+: FedRank with what the evidence says it lacks, and its control without probes and network.

Not in the paper, and kept apart from ``fedrank``.

Three repairs, each with its switch:

1. Fewer probes. What a probe tells is mostly known from earlier rounds, so ``probe_factor`` times K devices
   are probed instead of three times K.
2. Known speeds before probing. Candidates come from the fastest ``fast_share`` of the devices with data, by
   what is known of their time per sample, in proportion to their data; nobody is probed only to be found slow
   or empty, and whoever failed lately is seldom asked (`emulator.selectors.parts.estimates`).
3. A cohort, not a list. An additive score picks the same kind of device K times; on skewed labels such
   cohorts miss classes. The cohort grows greedily: the device that best balances the labels, estimated from
   the output bias of earlier updates, with FedRank's rank as the other half of the score (``coverage``).

Labels, true speeds and the test set stay unseen.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emulator.round.selector import Family, Selector
from emulator.round.view import Ids, ServerView
from emulator.selectors.fedrank.selector import FedRank
from emulator.selectors.parts.cohort import FastAndBalanced, grown
from emulator.selectors.parts.estimates import label_shares
from emulator.selectors.parts.options import within


class FedRankPlus(FedRank):
    """Set-aware ranking of fewer, better candidates.

    Args:
        probe_factor: Candidates per device wanted; the scenario's M is the most.
        fast_share: Share of the eligible devices, fastest first, that candidates come from.
        coverage: Weight of the label balance; 0 ranks as FedRank does.
        **options: Those of `FedRank`.
    """

    name: ClassVar[str] = "fedrank_plus"
    paper: ClassVar[str] = "own, after FedRank (ICML 2024)"
    deviations: ClassVar[str] = (
        "set-aware choice, fewer probes, known speeds before probing; not in the paper"
    )
    needs: ClassVar[frozenset[str]] = FedRank.needs | {"bias_delta", "capability_s", "failures"}

    def __init__(
        self, *, probe_factor: float = 1.5, fast_share: float = 0.6, coverage: float = 1.0, **options: Any
    ) -> None:
        within(self.name, "probe_factor", probe_factor, 1.0, 1e9)
        within(self.name, "fast_share", fast_share, 0.0, 1.0)
        within(self.name, "coverage", coverage, 0.0, 1e9)
        super().__init__(**options)
        self._rule = FastAndBalanced(probe_factor, fast_share)
        self._coverage = coverage

    def probe_count(self, m: int, k: int) -> int:
        """``probe_factor`` times K."""
        return min(m, math.ceil(self._rule.factor * k))

    def candidates(self, view: ServerView, m: int, rng: np.random.Generator) -> Ids:
        """The best balanced of a random pool of devices that are fast enough, in proportion to their data."""
        return self._rule.candidates(view, m, rng)

    def _picks(self, view: ServerView, candidates: Ids, rank: NDArray[np.float32], k: int) -> Ids:
        # By place and not by value: how far apart two ranks are has no meaning beside a divergence.
        place = np.argsort(np.argsort(-rank, kind="stable"), kind="stable") / max(1, len(rank) - 1)
        return grown(label_shares(view.bias_delta[candidates]), place, k, coverage=self._coverage)


class NoProbe(Selector):
    """FedRank+ without probes and without a network: a control.

    Its candidates are FedRank+'s, by the same rule from the same random stream. Of these the cohort grows by
    label balance alone; what is known from earlier rounds and from registration has to do. Where FedRank+ is
    not better than this, its probes and its network earn nothing. Like FedRank+ it reads single updates
    (``bias_delta``), which secure aggregation would hide.

    Args:
        candidate_factor: Candidates per device wanted; the scenario's M is the most.
        fast_share: Share of the eligible devices, fastest first, that candidates come from.
    """

    name: ClassVar[str] = "no_probe"
    family: ClassVar[Family] = Family.CONTROL
    paper: ClassVar[str] = ""
    deviations: ClassVar[str] = "own control: the candidate rule of fedrank_plus, no probe, no network"
    needs: ClassVar[frozenset[str]] = frozenset({"bias_delta", "capability_s", "epoch_s", "failures"})

    def __init__(self, *, candidate_factor: float = 1.5, fast_share: float = 0.6) -> None:
        within(self.name, "candidate_factor", candidate_factor, 1.0, 1e9)
        within(self.name, "fast_share", fast_share, 0.0, 1.0)
        self._rule = FastAndBalanced(candidate_factor, fast_share)

    def candidates(self, view: ServerView, m: int, rng: np.random.Generator) -> Ids:
        """Those of FedRank+."""
        return self._rule.candidates(view, m, rng)

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """The ``k`` that balance the labels best together."""
        shares = label_shares(view.bias_delta[candidates])
        return candidates[grown(shares, np.zeros(len(candidates)), min(k, len(candidates)))]
