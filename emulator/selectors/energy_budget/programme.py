"""Two integer programmes, one after the other: the most value for the energy, then the shortest round.

    1. V* = max sum v_i y_i   subject to  sum e_i y_i <= B,  sum y_i = K
    2. min T + eps sum e_i y_i  subject to the same,  t_i y_i <= T,  sum v_i y_i >= (1 - delta) V*

Both are solved by HiGHS (`scipy.optimize.milp`); exhaustive search on small fleets agrees (tests).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from emulator.round.view import Ids
from emulator.selectors.parts.draws import top_k

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint

Array = NDArray[np.float64]

LONGEST_SOLVE_S = 5.0
"""On one programme; the best found by then counts."""


def best_cohort(
    value: Array, energy_j: Array, time_s: Array, k: int, budget_j: float, *, slack: float = 0.02
) -> Ids:
    """Positions of ``k`` devices within the budget; empty if the cheapest ``k`` are not.

    Args:
        value: v, none below 0.
        energy_j: e.
        time_s: t.
        k: How many.
        budget_j: B.
        slack: delta, by which value may fall for a shorter round.
    """
    from scipy.optimize import LinearConstraint  # lists of selectors load this module
    from scipy.sparse import csr_array, diags_array, hstack

    cheapest = top_k(-energy_j, k)
    if len(cheapest) < k or not k or energy_j[cheapest].sum() > budget_j:
        return cheapest[:0]
    n = len(value)
    rows = [
        LinearConstraint(energy_j[np.newaxis], ub=budget_j),
        LinearConstraint(np.ones((1, n)), lb=k, ub=k),
    ]
    first = _solved(-value, rows)
    chosen = cheapest if first is None else top_k(first[:n], k)
    most = float(value[chosen].sum())
    epigraph = csr_array(hstack([diags_array(time_s), csr_array(-np.ones((n, 1)))]))
    wide = [LinearConstraint(np.append(row.A, [[0.0]], axis=1), row.lb, row.ub) for row in rows]
    wide.append(LinearConstraint(np.append(value, 0.0)[np.newaxis], lb=(1 - slack) * most * (1 - 1e-9)))
    wide.append(LinearConstraint(epigraph, ub=0.0))
    tie = 1e-6 * float(time_s.max()) / max(float(energy_j.sum()), 1e-12)
    second = _solved(np.append(tie * energy_j, 1.0), wide, free=1)
    if second is None:
        return np.sort(chosen)
    later = top_k(second[:n], k)
    # A solver's feasibility has a tolerance; the budget has none.
    return np.sort(later if energy_j[later].sum() <= budget_j else chosen)


def _solved(cost: Array, rows: list[LinearConstraint], *, free: int = 0) -> Array | None:
    """Binaries, and ``free`` variables that are any number from 0 on behind them."""
    from scipy.optimize import Bounds, milp

    n = len(cost) - free
    found = milp(
        cost,
        integrality=np.r_[np.ones(n), np.zeros(free)],
        bounds=Bounds(0.0, np.r_[np.ones(n), np.full(free, np.inf)]),
        constraints=rows,
        options={"time_limit": LONGEST_SOLVE_S, "mip_rel_gap": 1e-6},
    )
    return None if found.x is None else np.asarray(found.x)
