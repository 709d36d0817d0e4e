"""How much longer and how much more energy training takes beside a background load: a monotone curve.

Between its points a curve is PCHIP (Fritsch and Carlson 1980), which never overshoots: monotone points give a
monotone curve. Beyond the first and the last point it stays at their value, because nothing was measured
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from joulefleet.config import ClosedModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray


class LoadPoint(ClosedModel):
    """Training beside a background load.

    Attributes:
        load: Background CPU load, 0 (none) to 1 (all cores busy).
        slowdown: Epoch duration relative to no load, at least 1 up to noise.
        energy_factor: Marginal energy relative to no load.
    """

    load: float = Field(ge=0, le=1)
    slowdown: float = Field(gt=0)
    energy_factor: float = Field(gt=0)


def interpolate(x: Sequence[float], y: Sequence[float], at: ArrayLike) -> NDArray[np.float64]:
    """PCHIP through points of increasing ``x``, constant outside; 1 everywhere without points."""
    import numpy as np  # not at the top: profiles are also listed, where nothing is computed

    where = np.asarray(at, np.float64)
    if not x:
        return np.ones(where.shape)
    if len(x) == 1:
        return np.full(where.shape, float(y[0]))
    from scipy.interpolate import PchipInterpolator

    curve = PchipInterpolator(np.asarray(x, np.float64), np.asarray(y, np.float64))
    values: NDArray[np.float64] = curve(np.clip(where, x[0], x[-1]))
    return values
