"""Who rolls the dice for Oort: the engine's generator, or the pair that the published class owns.

The published class draws, in this order: the exploited devices with numpy's global generator, the explored
ones with the same, fill-ins with Python's own. Candidates of a weighted draw are handed over in descending
order of weight. Nothing else of a decision is random. A decision made with `PublishedDraws` of the seed 233
is therefore the published class's own; with `EngineDraws` it has the same law.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from emulator.round.view import Ids
from emulator.selectors.parts.draws import draw_uniform, draw_weighted, log_of


class Draws(Protocol):
    """The two kinds of draw in a decision."""

    def weighted(self, ids: Ids, weights: NDArray[np.float64], size: int) -> Ids:
        """``size`` of the ids without replacement, in proportion to positive weights."""
        ...

    def fill(self, ids: Ids, taken: Ids, size: int) -> Ids:
        """``size`` of the ids uniformly, none of which is taken; there are enough."""
        ...


class EngineDraws:
    """Draws from the generator of the round."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def weighted(self, ids: Ids, weights: NDArray[np.float64], size: int) -> Ids:
        """Successive draws without replacement."""
        return ids[draw_weighted(self._rng, log_of(weights), size)]

    def fill(self, ids: Ids, taken: Ids, size: int) -> Ids:
        """A uniform subset."""
        return draw_uniform(self._rng, np.setdiff1d(ids, taken, assume_unique=True), size)


class PublishedDraws:
    """Draws as the published class makes them, to replay its decisions; the generators come from outside."""

    def __init__(self, numpy_rng: np.random.RandomState, python_rng: Random) -> None:
        self._numpy = numpy_rng
        self._python = python_rng

    def weighted(self, ids: Ids, weights: NDArray[np.float64], size: int) -> Ids:
        """One call of ``choice`` over the ids in descending order of weight, ties by id."""
        order = np.lexsort((ids, -weights))
        found = self._numpy.choice(ids[order], size, p=weights[order] / weights.sum(), replace=False)
        return np.asarray(found, dtype=np.int64)

    def fill(self, ids: Ids, taken: Ids, size: int) -> Ids:
        """One index after another; those taken already are drawn in vain, as there."""
        seen = set(taken.tolist())
        found: list[int] = []
        while len(found) < size:
            one = int(ids[self._python.randrange(len(ids))])
            if one not in seen:
                seen.add(one)
                found.append(one)
        return np.array(found, dtype=np.int64)
