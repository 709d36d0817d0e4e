"""Frugal: cheap and well-mixed cohorts from forecast costs; a probe only where it is worth its price. Own.

1. Forecast. A device's epoch is forecast from its registration and its own reports, with its uncertainty
   (`emulator.selectors.frugal.forecast`). Its cost is c_i = (1 - g) t_i / T + g e_i / E: t_i and e_i time and
   energy of its round, T and E those of the median device, g ``energy_weight``.
2. Pool. 4.5 K devices are drawn in proportion to their samples n_i from the ``cheap_share`` of the fleet with
   the lowest c_i / n_i.
3. Cohort. (1 + ``spare``) K devices are taken from it one by one so that labels spread. ``coverage =
   "balance"``, the default, is the rule of ``no_probe``: next is who makes KL(mean label shares || uniform)
   smallest. ``"submodular"`` adds the most to F(S) = sum over classes of log(1 + 10 s_c), s_c the class's
   shares over S added up; it needed more rounds on development seeds. Label shares are guessed from the
   output bias of each device's last update (`emulator.selectors.parts.estimates`); unknown ones count as
   balanced, so that whoever is unknown is tried. ``"none"`` takes the pool as it was drawn. Without probes
   the K of them with the lowest c_i / n_i train.
4. Value of a probe. With x more candidates, the K + x lowest c_i / n_i are probed and the K train that turn
   out lowest. Both rounds are drawn ``DRAWS`` times from the forecasts, with l local epochs. Without probes
   the time is the largest of comm_i + l epoch_i over K. With probes it is the largest of comm_i / 2 + epoch_i
   over K + x, and after that the largest of comm_i / 2 + (l - 1) epoch_i over the K that are kept; x more
   downloads and epochs are paid. Of x = 0, 1, 2, 4, ... the cheapest in the mean is taken, time and energy
   weighted by g. With x = 0 nobody is probed (`Selector.probe_optional`).

What the server must see: times and energies that devices report, and the output bias of single updates.
Secure aggregation would hide the latter; with ``coverage = "none"`` it is not used.

Variants: ``frugal_no_probe`` never probes (x = 0), ``frugal_probe_all`` always probes the
scenario's M, ``frugal_forecast_all`` takes the K cheapest of these M by forecast.

Approximation: a download is taken for half of a transfer's cost. With over-commitment and x = 0 there are no
spares.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from emulator.round.outcome import RoundOutcome
from emulator.round.selector import Family, Probe, Selector
from emulator.round.view import Ids, ServerView
from emulator.selectors.frugal.forecast import CostForecast
from emulator.selectors.parts.cohort import grown, others
from emulator.selectors.parts.draws import draw_weighted, log_of, top_k
from emulator.selectors.parts.estimates import label_shares, worth_asking
from emulator.selectors.parts.options import one_of, within

Array = NDArray[np.float64]

POOL = 4.5
"""Devices in the pool per device wanted: as many as those of FedRank+ and of its control."""
ENOUGH = 0.1
"""Share of a device at which a class begins to be covered."""
DRAWS = 64
MOST = 1e9
"""Seconds or joules at which a cost ends: endless ones would leave nothing to compare."""


class Frugal(Selector):
    """Forecast costs, label coverage, probes by their value.

    Args:
        cheap_share: Share of the fleet, cheapest first, that the pool is drawn from.
        spare: Devices beyond K that the cohort is grown to, per device wanted; the dearest are let go.
        energy_weight: g, of energy in the cost; the rest is time.
        coverage: How labels are spread; ``none`` reads no single update.
        memory_s: After so long, how a device was has lost all but 1/e of its meaning.
    """

    name: ClassVar[str] = "frugal"
    family: ClassVar[Family] = Family.HEURISTIC
    paper: ClassVar[str] = "own"
    deviations: ClassVar[str] = "own method: forecast costs, label coverage, probes by their value"
    probe: ClassVar[Probe] = Probe.EPOCH
    probe_optional: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset(
        {"bias_delta", "capability_s", "epoch_s", "epoch_j", "comm_s", "comm_j", "failures"}
    )
    extras: ClassVar[Literal["by value", "none", "all"]] = "by value"

    def __init__(
        self,
        *,
        cheap_share: float = 0.6,
        spare: float = 0.2,
        energy_weight: float = 0.5,
        coverage: Literal["balance", "submodular", "none"] = "balance",
        memory_s: float = 7200.0,
    ) -> None:
        within(self.name, "cheap_share", cheap_share, 0.0, 1.0)
        within(self.name, "spare", spare, 0.0, 1e6)
        within(self.name, "energy_weight", energy_weight, 0.0, 1.0)
        one_of(self.name, "coverage", coverage, ("balance", "submodular", "none"))
        within(self.name, "memory_s", memory_s, 1.0, 1e9)
        self._cheap_share, self._spare = cheap_share, spare
        self._energy_weight, self._coverage = energy_weight, coverage
        self._memory_s = memory_s
        self._forecast: CostForecast | None = None
        self._extra = 0

    def candidates(self, view: ServerView, m: int, rng: np.random.Generator) -> Ids:
        """The cohort, and as many more as it pays to probe."""
        ids = view.eligible_ids
        if len(ids) <= view.k:
            self._extra = 0
            return ids
        worth = ids[worth_asking(view, ids, rng)]
        if len(worth) <= view.k:
            self._extra = 0
            return np.sort(np.concatenate([worth, others(ids, worth, view.k, rng)]))
        m = max(m, view.k)
        wanted = m if self.extras == "all" else min(m, math.ceil((1 + self._spare) * view.k))
        cost = self._forecast_costs(view, worth)
        most = max(math.ceil(POOL * view.k), wanted)
        cheap = top_k(-cost, max(most, math.ceil(self._cheap_share * len(worth))))
        pool = worth[cheap[draw_weighted(rng, log_of(view.data_size[worth[cheap]]), most)]]
        found = pool[self._grown(view, pool, min(wanted, len(pool)))]
        if self.extras == "by value":
            order = found[top_k(-self._forecast_costs(view, found), len(found))]
            found = order[: view.k + self._worth_probing(view, order, rng)]
        self._extra = max(0, len(found) - view.k) if self.probe is Probe.EPOCH else 0
        return np.sort(found)

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """The cheapest, as measured by those that were probed."""
        if len(candidates) <= k:
            return candidates
        if self.probe is Probe.NONE:
            return candidates[top_k(-self._forecast_costs(view, candidates), k)]
        return candidates[top_k(-self._measured_costs(view, candidates), k)]

    def observe(self, view: ServerView, outcome: RoundOutcome) -> None:
        """Learn what an epoch took."""
        reports = outcome.reports
        self._forecasts(view).observe(view, outcome.clients, reports.epoch_s, reports.epoch_j)

    def _forecasts(self, view: ServerView) -> CostForecast:
        if self._forecast is None:
            self._forecast = CostForecast(len(view), self._memory_s)
        return self._forecast

    def _grown(self, view: ServerView, devices: Ids, count: int) -> Ids:
        """Positions of ``count`` devices in greedy order."""
        if self._coverage == "none":
            return np.arange(count)
        shares = label_shares(view.bias_delta[devices])
        if self._coverage == "balance":
            return grown(shares, np.zeros(len(devices)), count)
        covered = np.zeros(shares.shape[1])
        found = np.empty(count, np.int64)
        taken = np.zeros(len(devices))
        for i in range(count):
            found[i] = best = int(np.argmax(np.log1p(shares / (covered + ENOUGH)).sum(1) - taken))
            covered += shares[best]
            taken[best] = np.inf
        return found

    def _forecast_costs(self, view: ServerView, devices: Ids) -> Array:
        epoch_s = np.exp(self._forecasts(view).epoch(view, devices)[0])
        return self._costs(view, devices, epoch_s, epoch_s * self._forecasts(view).power_w(devices))

    def _measured_costs(self, view: ServerView, devices: Ids) -> Array:
        forecast_s = np.exp(self._forecasts(view).epoch(view, devices)[0])
        epoch_s, epoch_j = view.epoch_s[devices], view.epoch_j[devices]
        epoch_s = np.where(np.isnan(epoch_s), forecast_s, epoch_s)
        forecast_j = epoch_s * self._forecasts(view).power_w(devices)
        return self._costs(view, devices, epoch_s, np.where(np.isnan(epoch_j), forecast_j, epoch_j))

    def _costs(self, view: ServerView, devices: Ids, epoch_s: Array, epoch_j: Array) -> Array:
        """What a round costs each per sample, in units of the median device's round."""
        comm_s, comm_j = (_finite(values[devices]) for values in (view.comm_s, view.comm_j))
        time_s = comm_s + view.local_epochs * _finite(epoch_s)
        energy_j = comm_j + view.local_epochs * _finite(epoch_j)
        g = self._energy_weight
        cost = (1 - g) * time_s / _median(time_s) + g * energy_j / _median(energy_j)
        return np.asarray(cost / np.maximum(view.data_size[devices], 1))

    def _worth_probing(self, view: ServerView, order: Ids, rng: np.random.Generator) -> int:
        """How many more candidates than are wanted make the round cheapest in the mean."""
        k, forecast = view.k, self._forecasts(view)
        epoch_s = _finite(forecast.draw(rng, *forecast.epoch(view, order), DRAWS))
        epoch_j = epoch_s * forecast.power_w(order)
        comm_s, comm_j = (_finite(values[order]) for values in (view.comm_s, view.comm_j))
        size = np.maximum(view.data_size[order], 1)
        rest = view.local_epochs - 1
        time_s = comm_s[:k] + (rest + 1) * epoch_s[:, :k]
        energy_j = comm_j[:k] + (rest + 1) * epoch_j[:, :k]
        unit_s, unit_j = (max(float(v), 1e-12) for v in (time_s.max(1).mean(), energy_j.sum(1).mean()))
        g = self._energy_weight
        best, least = 0, 1.0  # without probes a round costs one unit
        for extra in _steps(len(order) - k):
            many = k + extra
            left_s = comm_s[:many] / 2 + rest * epoch_s[:, :many]
            left_j = comm_j[:many] / 2 + rest * epoch_j[:, :many]
            cost = ((1 - g) * left_s / unit_s + g * left_j / (unit_j / k)) / size[:many]
            kept = np.argpartition(cost, k - 1, axis=1)[:, :k]
            probe_s = (comm_s[:many] / 2 + epoch_s[:, :many]).max(1)
            whole_s = probe_s + np.take_along_axis(left_s, kept, 1).max(1)
            probe_j = (comm_j[:many] / 2 + epoch_j[:, :many]).sum(1)
            whole_j = probe_j + np.take_along_axis(left_j, kept, 1).sum(1)
            expected = float((1 - g) * whole_s.mean() / unit_s + g * whole_j.mean() / unit_j)
            if expected < least:
                best, least = extra, expected
        return best

    def metrics(self) -> dict[str, float]:
        """How many more than wanted were probed, and what devices are thought to differ by."""
        own, today = (math.nan, math.nan) if self._forecast is None else self._forecast.spread
        return {"extra_candidates": float(self._extra), "unit_log_sd": own, "today_log_sd": today}

    def state_dict(self) -> dict[str, Any]:
        """The forecasts."""
        known = self._forecast
        return {"forecast": None if known is None else known.state_dict(), "extra": self._extra}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state from `state_dict`."""
        self._extra = int(state["extra"])
        if state["forecast"] is not None:
            self._forecast = CostForecast(0, self._memory_s)
            self._forecast.load_state_dict(state["forecast"])


class FrugalNoProbe(Frugal):
    """Frugal that never probes: what its probes are worth is the difference."""

    name: ClassVar[str] = "frugal_no_probe"
    probe: ClassVar[Probe] = Probe.NONE
    probe_optional: ClassVar[bool] = False
    extras: ClassVar[Literal["by value", "none", "all"]] = "none"
    deviations: ClassVar[str] = "own method: as frugal, without probes"


class FrugalProbeAll(Frugal):
    """Frugal that always probes as many candidates as the scenario allows."""

    name: ClassVar[str] = "frugal_probe_all"
    probe_optional: ClassVar[bool] = False
    extras: ClassVar[Literal["by value", "none", "all"]] = "all"
    deviations: ClassVar[str] = "own method: as frugal, M candidates are always probed"


class FrugalForecastAll(Frugal):
    """Frugal that considers as many candidates as the scenario allows, by forecast: the other's twin."""

    name: ClassVar[str] = "frugal_forecast_all"
    probe: ClassVar[Probe] = Probe.NONE
    probe_optional: ClassVar[bool] = False
    extras: ClassVar[Literal["by value", "none", "all"]] = "all"
    deviations: ClassVar[str] = "own method: as frugal, the best of M candidates by forecast, without probes"


def _finite(values: Array) -> Array:
    return np.nan_to_num(values, nan=0.0, posinf=MOST, neginf=0.0).clip(0.0, MOST)


def _median(values: Array) -> float:
    return max(float(np.median(values)), 1e-12)


def _steps(most: int) -> list[int]:
    """1, 2, 4, ... and ``most``."""
    found = [1 << i for i in range(most.bit_length()) if 1 << i < most]
    return [*found, most] if most > 0 else []
