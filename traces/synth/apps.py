"""Which app is in the foreground while the screen is on: one category per session."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traces.synth.model import AppMix


def draw_apps(
    mix: AppMix, person: NDArray[np.int64], people: int, rng: np.random.Generator
) -> NDArray[np.int8]:
    """The category of each session, by number.

    Every person's popularities fall by one ratio from category to category, so that the number of the
    category is geometric, cut off at the last one.

    Args:
        mix: Of categories.
        person: Of each session, sorted.
        people: How many there are in the block.
        rng: Where chance comes from; a person's draws follow those of the persons before.
    """
    ratio = mix.ratio_low + (mix.ratio_high - mix.ratio_low) * rng.random(people)
    own = ratio[person]
    last = len(mix.categories)
    u = rng.random(len(person)) * (1.0 - own**last)
    number = np.floor(np.log1p(-u) / np.log(own)).astype(np.int8)
    return np.asarray(np.minimum(number, np.int8(last - 1)))
