"""Oort: devices with high losses that are fast enough, and some that nobody has tried.

Implements Lai et al., OSDI 2021: its equation 1, the product of the statistical utility |B_i| sqrt(mean of
squared losses) and of (T/t_i)^alpha for devices slower than T, and its algorithm 1.

Switches:
    mode: ``paper`` (default) follows the publication, ``official`` decides as the authors' class does,
        ``fedscale`` as FedScale's copy of it; each with its own defaults.
    exploration, exploration_decay, exploration_min: Share of a cohort that goes to devices never tried.
    cut_off, clip_bound: Which scores may be drawn; where utilities are clipped.
    blacklist_after, blacklist_share: After how often a device is left alone; how many may be.
    penalty: alpha.
    pacer_step, threshold_percent, threshold_step_percent: W, T and Delta of the pacer.
    sample_window: Among how many times as many new devices are drawn.
    Each mode's values are in `emulator.selectors.oort.settings`.

Deviations: T is a percentile of the fleet's durations and scores are normalised before the uncertainty term
is added, as in the published class; losses are those of the first local epoch. Round 1 is uniformly random,
as in the authors' driver, and so is every round until someone has reported. Devices that were cut as surplus
or at the deadline are credited with the round's mean utility, as stragglers are there: they would stay
unexplored otherwise, and be tried for ever. In ``fedscale`` mode duplicates are dropped and the
cohort is cut or filled to K.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emulator.round.outcome import Fate, RoundOutcome
from emulator.round.selector import Family, Selector
from emulator.round.view import Ids, ServerView
from emulator.selectors.oort.draws import EngineDraws
from emulator.selectors.oort.official import OfficialRules
from emulator.selectors.oort.settings import DEFAULTS, Settings
from emulator.selectors.oort.variants import FedScaleRules, PaperRules
from emulator.selectors.parts.draws import draw_uniform
from emulator.selectors.parts.estimates import round_s
from emulator.selectors.parts.options import one_of, whole, within
from joulefleet.errors import ConfigError

RULES: dict[str, type[OfficialRules]] = {
    "paper": PaperRules,
    "official": OfficialRules,
    "fedscale": FedScaleRules,
}
BOUNDS = {
    "blacklist_after": (-1, 1e9),
    "penalty": (0, 100),
    "pacer_step": (0, 1e9),
    "threshold_percent": (0, 100),
    "threshold_step_percent": (0, 100),
    "sample_window": (1, 1e9),
}
"""Of settings that are not shares between 0 and 1."""


class Oort(Selector):
    """Guided participant selection.

    Args:
        mode: Whose rules to follow.
        options: Any field of `Settings`.
    """

    name: ClassVar[str] = "oort"
    family: ClassVar[Family] = Family.HEURISTIC
    paper: ClassVar[str] = "Lai et al., OSDI 2021"
    deviations: ClassVar[str] = (
        "T as a percentile of durations; scores normalised before the uncertainty term"
    )
    needs: ClassVar[frozenset[str]] = frozenset({"capability_s", "comm_s", "epoch_s", "loss_rms"})
    # Those of the default mode; the others' stand in docs/selectors-notes.md.
    option_defaults: ClassVar[Mapping[str, Any]] = asdict(DEFAULTS["paper"])

    def __init__(self, *, mode: str = "paper", **options: float) -> None:
        one_of(self.name, "mode", mode, RULES)
        self.rules = RULES[mode](_settings(self.name, mode, options))

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """One decision of the rules, or everyone if there are not more than ``k``."""
        self._register(view)
        if len(candidates) <= k:
            return candidates
        if not self.rules.arms.count.any():
            return draw_uniform(rng, candidates, k)
        feasible = np.zeros(len(view), dtype=bool)
        feasible[candidates] = True
        picked = self.rules.decide(k, feasible, EngineDraws(rng), self.factor(view)).picked
        return _repaired(picked, candidates, feasible, k, rng)

    def factor(self, view: ServerView) -> NDArray[np.float64] | None:
        """What multiplies each device's score; nothing in Oort itself."""
        return None

    def observe(self, view: ServerView, outcome: RoundOutcome) -> None:
        """Feed back utilities and durations of those that finished, and of the stragglers."""
        self._register(view)
        fates = np.array(outcome.fates, dtype=object)
        finished = outcome.clients[outcome.chosen & (fates == Fate.FINISHED)]
        late = (fates == Fate.SURPLUS) | (fates == Fate.DEADLINE)
        stragglers = outcome.clients[outcome.chosen & late]
        if outcome.round == 0 or len(finished) == 0:
            return
        utility = np.nan_to_num(view.data_size[finished] * view.loss_rms[finished])
        duration_s = round_s(view)
        self.rules.arms.feed_back(finished, utility, duration_s[finished], outcome.round)
        mean = np.full(len(stragglers), utility.mean())
        self.rules.arms.feed_back(stragglers, mean, duration_s[stragglers], outcome.round)

    def metrics(self) -> dict[str, float]:
        """Where exploration and the pacer stand."""
        return {
            "exploration": self.rules.exploration,
            "threshold_percent": self.rules.threshold_percent,
            "unexplored": float(np.count_nonzero(self.rules.arms.count == 0)),
        }

    def state_dict(self) -> dict[str, Any]:
        """The state of the rules."""
        return self.rules.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state from `state_dict`."""
        self.rules.load_state_dict(state)

    def _register(self, view: ServerView) -> None:
        if len(self.rules.arms.utility) == 0:
            self.rules.register(view.data_size.astype(np.float64), round_s(view))
        if self.rules.settings.pacer_step == 0:
            self.rules.settings = replace(self.rules.settings, pacer_step=_pacer_step(view.rounds))


def _settings(selector: str, mode: str, options: dict[str, float]) -> Settings:
    known = [field.name for field in fields(Settings)]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ConfigError(
            f"selector {selector!r} has no option {unknown[0]!r}", hint=f"known: mode, {', '.join(known)}"
        )
    settings = Settings(**{**asdict(DEFAULTS[mode]), **options})
    for name in known:
        low, high = BOUNDS.get(name, (0, 1))
        check = whole if isinstance(getattr(DEFAULTS[mode], name), int) else within
        check(selector, name, getattr(settings, name), low, high)
    return settings


def _pacer_step(rounds: int) -> int:
    """The paper's 20 for its hundreds of rounds; a tenth of a short run, or the pacer would never act."""
    return min(20, max(2, rounds // 10))


def _repaired(
    picked: Ids,
    candidates: Ids,
    feasible: NDArray[np.bool_],
    k: int,
    rng: np.random.Generator,
) -> Ids:
    """Unique devices that are there, cut or filled to ``k``; changes nothing but FedScale's decisions."""
    _, first = np.unique(picked, return_index=True)
    picked = picked[np.sort(first)]
    picked = picked[feasible[picked]][:k]
    if len(picked) == k:
        return picked
    rest = np.setdiff1d(candidates, picked, assume_unique=True)
    return np.concatenate([picked, draw_uniform(rng, rest, k - len(picked))])
