"""Value decomposition over devices (Sunehag et al. 2018): the joint value is the sum of the devices' values.

One network with two outputs, Q(s, 0) and Q(s, 1), is applied to every device. With exactly K devices chosen
the best joint action is the K largest advantages Q(s, 1) - Q(s, 0), not the K largest Q(s, 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emulator.selectors.parts.draws import top_k

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from emulator.selectors.neural.mlp import Mlp

    Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Transition:
    """One round of all candidates together.

    Attributes:
        state: Normalised features, one row per candidate.
        action: Which of them were chosen.
        reward: Of the round.
        next_state: The next round's candidates; None at the end of the run.
        next_k: How many are chosen of them; None if their number is free.
        most: Where their number is free, how many are chosen at most in any round.
        credits: Reward of each candidate's own part in the round, 0 for those not chosen; None if not known.
    """

    state: Array
    action: NDArray[np.bool_]
    reward: float
    next_state: Array | None
    next_k: int | None
    most: int | None = None
    credits: NDArray[np.float64] | None = None


def advantages(q: Array) -> Array:
    """What choosing a device adds to the joint value."""
    return q[:, 1] - q[:, 0]


def at_outputs(slope: Array) -> Array:
    """The slope at both outputs, given that at the advantage."""
    return np.stack([-slope, slope], axis=1)


def best_value(q: Array, k: int | None, most: int | None = None) -> float:
    """The largest joint value with exactly ``k`` devices chosen, or with any number from 1 to ``most``."""
    gain = advantages(q)
    if k is not None:
        return float(q[:, 0].sum() + gain[top_k(gain, k)].sum())
    best = gain[top_k(gain, len(gain) if most is None else most)]
    willing = best[best > 0]
    return float(q[:, 0].sum() + (willing if len(willing) else best[:1]).sum())


def td_slopes(
    q: Sequence[Array], batch: Sequence[Transition], target: Mlp, discount: float, baseline: float = 0.0
) -> tuple[float, list[Array]]:
    """Mean squared TD error of the joint values, and its slope at every device's outputs.

    Both sums are divided by the number of devices chosen, so that values are on the scale of one reward
    whatever K is. Where that number is free they are divided by the most that can be: divided by what was
    chosen, the reward of a round would count once per device. The target is
    r - baseline + discount max Q(next).
    """
    loss = 0.0
    slopes = []
    for values, seen in zip(q, batch, strict=True):
        chosen = seen.most or int(seen.action.sum()) or 1
        taken = values[np.arange(len(values)), seen.action.astype(np.int64)]
        goal = seen.reward - baseline
        if seen.next_state is not None and discount > 0:
            best = best_value(target(seen.next_state), seen.next_k, seen.most)
            goal += discount * best / (seen.next_k or chosen)
        error = float(taken.sum()) / chosen - goal
        loss += error**2 / len(batch)
        slope = np.zeros_like(values)
        slope[np.arange(len(values)), seen.action.astype(np.int64)] = 2 * error / chosen / len(batch)
        slopes.append(slope)
    return loss, slopes
