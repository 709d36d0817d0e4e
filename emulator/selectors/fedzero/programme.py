"""FedZero's programme: who takes part for how many batches, in the shortest round that is possible.

For a round of d steps, with binaries b_c and batches m_ct (FedZero, `_optimal_selection` of the published
code):

    maximise   sum over c, t of u_c m_ct
    subject to 0 <= m_ct <= b_c capacity_ct
               sum over c in zone z of energy_c m_ct <= excess_zt
               b_c min_c <= sum over t of m_ct <= b_c max_c
               sum over c of b_c = K

The published objective has b_c u_c m_ct and binds m_ct by indicators; with m_ct <= b_c capacity_ct both have
the same optima and this one is linear, as HiGHS wants it (`scipy.optimize.milp`). The published search takes
the first of d = 1, 2, ... that has a solution. What d steps allow, d + 1 allow too, so here d is found by
bisection.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.round.view import Ids
from emulator.selectors.parts.draws import top_k

Array = NDArray[np.float64]

LONGEST_SOLVE_S = 10.0
"""On one programme; the best found by then counts. Small ones take milliseconds."""
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Clients:
    """What is forecast of clients, one row or entry each.

    Attributes:
        capacity: Batches that each can compute in each step.
        batch_j: Energy of one batch.
        epoch_batches: Batches of one local epoch.
        utility: u_c.
        zone: Number of its power domain.
        excess_j: Energy of each domain in each step; ``None`` for no limit.
    """

    capacity: Array
    batch_j: Array
    epoch_batches: Array
    utility: Array
    zone: Ids
    excess_j: Array | None

    def some(self, among: Ids, scale: float, steps: int) -> Clients:
        """Some of them over so many steps, each ``scale`` times as long as the one that is known."""
        capacity = np.repeat(scale * self.capacity[among], steps, axis=1)
        return Clients(
            capacity,
            self.batch_j[among],
            self.epoch_batches[among],
            self.utility[among],
            self.zone[among],
            self.excess_j,
        )

    def possible(self) -> Array:
        """Batches that each could compute in each step if it had its domain to itself."""
        if self.excess_j is None:
            return self.capacity
        excess_j = self.excess_j[self.zone, : self.capacity.shape[1]]
        return np.minimum(self.capacity, excess_j / self.batch_j[:, np.newaxis])


@dataclass(frozen=True, slots=True, eq=False)
class RoundPlan:
    """A solution.

    Attributes:
        steps: d.
        chosen: Positions of the clients, ascending.
        batches: What each of them is to compute in all.
        value: Of the objective.
    """

    steps: int
    chosen: Ids
    batches: Array
    value: float


def shortest_round(clients: Clients, k: int, min_epochs: float, max_epochs: float) -> RoundPlan | None:
    """The best plan of the shortest round in which ``k`` clients reach ``min_epochs``; ``None`` for none."""
    reach = np.cumsum(clients.possible(), axis=1) >= (min_epochs * clients.epoch_batches)[:, np.newaxis]
    enough = np.flatnonzero(reach.sum(0) >= k)
    if not len(enough) or k == 0:
        return None
    low, high = int(enough[0]) + 1, reach.shape[1]
    best = None
    # Mostly the first that is not hopeless has a solution, so that is tried first; then by halves.
    steps = low
    while low <= high:
        found = best_of(clients, np.flatnonzero(reach[:, steps - 1]), steps, k, min_epochs, max_epochs)
        if found is None:
            low = steps + 1
        else:
            best, high = found, steps - 1
        steps = (low + high) // 2
    return best


def best_of(
    clients: Clients, among: Ids, steps: int, k: int, min_epochs: float, max_epochs: float
) -> RoundPlan | None:
    """The best plan of a round of so many steps among some clients; ``None`` if there is none."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # lists of selectors load this module
    from scipy.sparse import csr_array, diags_array, eye_array, hstack, kron

    capacity = clients.capacity[among, :steps]
    least, most = (epochs * clients.epoch_batches[among] for epochs in (min_epochs, max_epochs))
    if clients.excess_j is None:
        batches = np.minimum(capacity.sum(1), most)
        best = np.sort(top_k(clients.utility[among] * batches, k))
        value = float((clients.utility[among] * batches)[best].sum())
        return RoundPlan(steps, among[best], batches[best], value) if len(best) == k else None
    n = len(among)
    each = kron(eye_array(n), np.ones((1, steps)))  # sum over the steps of each client
    zones = np.unique(clients.zone[among])
    domain = csr_array((clients.zone[among] == zones[:, np.newaxis]) * clients.batch_j[among])
    energy = kron(domain, eye_array(steps))
    blank = csr_array((energy.shape[0], n))
    capped = hstack([-kron(diags_array(np.ones(n)), np.ones((steps, 1))).multiply(capacity.reshape(-1, 1)),
                     eye_array(n * steps)])  # fmt: skip
    rows = [
        LinearConstraint(csr_array(capped), ub=0.0),
        LinearConstraint(csr_array(hstack([blank, energy])), ub=clients.excess_j[zones, :steps].ravel()),
        LinearConstraint(csr_array(hstack([diags_array(-least), each])), lb=0.0),
        LinearConstraint(csr_array(hstack([diags_array(-most), each])), ub=0.0),
        LinearConstraint(csr_array(np.r_[np.ones(n), np.zeros(n * steps)][np.newaxis]), lb=k, ub=k),
    ]
    utility = clients.utility[among]
    found = milp(
        -np.r_[np.zeros(n), np.repeat(utility, steps)],
        integrality=np.r_[np.ones(n), np.zeros(n * steps)],
        bounds=Bounds(0.0, np.r_[np.ones(n), np.full(n * steps, np.inf)]),
        constraints=rows,
        options={"time_limit": LONGEST_SOLVE_S, "mip_rel_gap": ROUNDING},
    )
    if found.x is None:
        return None
    chosen = np.flatnonzero(found.x[:n] > 0.5)
    batches = found.x[n:].reshape(n, steps).sum(1)[chosen]
    return RoundPlan(steps, among[chosen], batches, float((utility[chosen] * batches).sum()))
