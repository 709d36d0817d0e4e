"""Which app is in the foreground while the screen is on: one category per session."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traces.synth.model import AppMix


class AppDrawing:
    """The apps of a batch of people.

    Every person's popularities fall by one ratio from category to category, so that the number of the
    category is geometric, cut off at the last one.

    Args:
        mix: Of categories.
        people: How many there are in the batch.
        rng: Where chance comes from; a person's draws follow those of the persons before.
    """

    def __init__(self, mix: AppMix, people: int, rng: np.random.Generator) -> None:
        self._last = len(mix.categories)
        self._ratio = mix.ratio_low + (mix.ratio_high - mix.ratio_low) * rng.random(people)
        self._rng = rng

    def draw(self, who: slice, person: NDArray[np.int64]) -> NDArray[np.int8]:
        """The category of each session, by number.

        Args:
            who: The people who come next in the batch.
            person: Whose session, counted from the first of them; sorted.
        """
        own = self._ratio[who][person]
        u = self._rng.random(len(person)) * (1.0 - own**self._last)
        number = np.floor(np.log1p(-u) / np.log(own)).astype(np.int8)
        return np.asarray(np.minimum(number, np.int8(self._last - 1)))
