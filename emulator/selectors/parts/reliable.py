"""Who is worth asking: devices that have data, and that do what they are asked.

Methods that look for what they do not know yet would ask a device that never delivers again and again, and
one without data looks perfectly balanced to those that count labels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from emulator.selectors.parts.draws import draw_uniform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emulator.round.view import ServerView

    Ids = NDArray[np.int64]


def worth_asking(view: ServerView, devices: Ids, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Devices with data; one that failed f times in a row only with probability 2^-f.

    Never for good: whoever is late today may be at home tomorrow. Nothing is drawn where nobody failed.
    """
    with_data = view.data_size[devices] > 0
    failures = view.failures[devices]
    if not failures.any():
        return np.asarray(with_data)
    return np.asarray(with_data & (rng.random(len(devices)) < 0.5**failures))


def choose_reliable(
    view: ServerView, candidates: Ids, k: int, rng: np.random.Generator, choose: Callable[[Ids, int], Ids]
) -> Ids:
    """``k`` devices that are worth asking, as ``choose`` has it; where they are too few, others at random."""
    worth = worth_asking(view, candidates, rng)
    first = candidates[worth]
    chosen = choose(first, min(k, len(first)))
    missing = min(k, len(candidates)) - len(chosen)
    return chosen if not missing else np.concatenate([chosen, draw_uniform(rng, candidates[~worth], missing)])
