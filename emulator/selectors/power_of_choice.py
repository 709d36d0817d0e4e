"""Power-of-Choice: of d random candidates, the K with the highest loss.

Implements Cho et al. 2020/22 (arXiv 2010.01243): d candidates are drawn without replacement in
proportion to their data sizes, report their loss, and the K highest are chosen. Three registered methods:

- ``power_of_choice`` (pi_pow-d): candidates receive the model and report its loss on all their data.
- ``cpow_d`` (pi_cpow-d): on one mini-batch only; cheaper and noisier.
- ``rpow_d`` (pi_rpow-d): nobody is asked; the loss of the device's last training stands in, and a device that
  never trained counts as infinite, so it goes first, unless it has no data or failed lately; ties at random.

Switches:
    d: Number of candidates; 0 (default) takes the scenario's own number of candidates. The paper varies d
        from K upwards; 2K to 3K is usual.

Deviations: ``rpow_d`` uses the mean loss over the first local epoch of the last participation, not over all
of its local steps.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from emulator.round.selector import Family, Probe, Selector
from emulator.round.view import Ids, ServerView
from emulator.selectors.parts.draws import draw_weighted, log_of, top_k
from emulator.selectors.parts.estimates import worth_asking
from emulator.selectors.parts.options import whole


class PowerOfChoice(Selector):
    """The highest current losses among a few candidates."""

    name: ClassVar[str] = "power_of_choice"
    family: ClassVar[Family] = Family.CONTROL
    paper: ClassVar[str] = "Cho et al., AISTATS 2022, arXiv 2010.01243"
    probe: ClassVar[Probe] = Probe.LOSS
    needs: ClassVar[frozenset[str]] = frozenset({"global_loss"})

    def __init__(self, *, d: int = 0) -> None:
        whole(self.name, "d", d, 0, 1e9)
        self.d = d

    def probe_count(self, m: int, k: int) -> int:
        """d, and no fewer than are wanted."""
        return max(self.d or m, k)

    def candidates(self, view: ServerView, m: int, rng: np.random.Generator) -> Ids:
        """``d`` eligible devices in proportion to their data sizes, never fewer than are wanted."""
        ids = view.eligible_ids
        wanted = self.probe_count(m, view.k)
        if wanted >= len(ids):
            return ids
        return np.sort(ids[draw_weighted(rng, log_of(view.data_size[ids]), wanted)])

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """The ``k`` highest losses; a candidate without one comes last."""
        return candidates[top_k(view.global_loss[candidates], k)]


class CheapPowerOfChoice(PowerOfChoice):
    """The same on the loss of one mini-batch."""

    name: ClassVar[str] = "cpow_d"
    probe: ClassVar[Probe] = Probe.BATCH


class RememberedPowerOfChoice(PowerOfChoice):
    """The same on the last loss known, without asking anyone."""

    name: ClassVar[str] = "rpow_d"
    deviations: ClassVar[str] = "remembers the loss of the first local epoch only"
    probe: ClassVar[Probe] = Probe.NONE
    needs: ClassVar[frozenset[str]] = frozenset({"loss", "failures"})

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """The ``k`` highest last losses; devices never heard of go first."""
        # They all tie, and top_k settles ties by position: in order, low numbers would always be tried first.
        shuffled = rng.permutation(candidates)
        loss = np.where(np.isnan(view.loss[shuffled]), np.inf, view.loss[shuffled])
        loss[~worth_asking(view, shuffled, rng)] = -np.inf
        return shuffled[top_k(loss, k)]
