"""REFL's selection: of the devices here now, those that will not be here for long.

Abdelmoniem et al., EuroSys 2023 (arXiv 2111.01108): devices least likely to be available later go first, ties
at random. Its other half, aggregation of stale updates, is not a matter of selection and left out.

``refl``: the paper asks each device for the probability that it is available in the next window; here the
share of past rounds in which it checked in stands for it. No switches.

``refl_oracle``: the rule of the published code, whose forecast is the trace itself. First go devices that
stay for the whole window from now, and not for the whole of the next one; then the others, at random. The
window is a moving average of the rounds' durations, W <- (1 - s) R_T + s W with s = 0.25, as if a round of
1,000 s had gone before the first. Who took part less than five rounds ago rests while there are others.

Deviations: a device that rests is passed over in the choice, in the code it is replaced after it; the code
loses one participant where fewer are there than wanted, and takes an imperfect oracle as an option.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from emulator.round.outcome import Accounting, RoundOutcome
from emulator.round.selector import Family, Selector
from emulator.round.view import Ids, ServerView
from emulator.selectors.parts.draws import top_k
from emulator.selectors.parts.options import whole, within


class Refl(Selector):
    """Least available first."""

    name: ClassVar[str] = "refl"
    family: ClassVar[Family] = Family.CONTROL
    paper: ClassVar[str] = "Abdelmoniem et al., EuroSys 2023, arXiv 2111.01108"
    deviations: ClassVar[str] = "availability is the share of past check-ins; no stale updates"
    needs: ClassVar[frozenset[str]] = frozenset({"check_ins"})

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """The ``k`` rarest guests."""
        shuffled = rng.permutation(candidates)  # top_k settles ties by position, so position must be random
        return shuffled[top_k(-view.check_ins[shuffled], k)]


class ReflOracle(Selector):
    """Who is about to leave goes first, as the trace tells.

    Args:
        first_window_s: Duration that a round is taken to have before there was one.
        smoothing: Weight of the window so far, s.
        rest_rounds: So many rounds after it took part a device may take part again.
    """

    name: ClassVar[str] = "refl_oracle"
    family: ClassVar[Family] = Family.CONTROL
    paper: ClassVar[str] = Refl.paper
    deviations: ClassVar[str] = (
        "who rests is passed over in the choice, not replaced after it; no stale updates"
    )
    needs: ClassVar[frozenset[str]] = frozenset({"last_round", "leaves_s"})
    privileged: ClassVar[bool] = True

    def __init__(
        self, *, first_window_s: float = 1000.0, smoothing: float = 0.25, rest_rounds: int = 5
    ) -> None:
        within(self.name, "first_window_s", first_window_s, 0.0, 1e9)
        within(self.name, "smoothing", smoothing, 0.0, 1.0)
        whole(self.name, "rest_rounds", rest_rounds, 0, 1e9)
        self._smoothing = smoothing
        self._rest_rounds = rest_rounds
        self._window_s = (1 - smoothing) * first_window_s

    def select(self, view: ServerView, candidates: Ids, k: int, rng: np.random.Generator) -> Ids:
        """Whoever leaves in the next window but one, then whoever has rested, then the others."""
        shuffled = rng.permutation(candidates)  # top_k settles ties by position, so position must be random
        leaves_s, last = view.leaves_s[shuffled], view.last_round[shuffled]
        rested = (last == 0) | (view.round - last >= self._rest_rounds)
        leaving = (leaves_s >= self._window_s) & (leaves_s < 2 * self._window_s)
        return shuffled[top_k(np.where(rested, 1.0 + leaving, 0.0), k)]

    def observe(self, view: ServerView, outcome: RoundOutcome) -> None:
        """Move the window towards the round's duration."""
        if outcome.round > 0 and outcome.chosen.any():
            lasted_s = outcome.costs[Accounting.HONEST].time_s
            self._window_s = (1 - self._smoothing) * lasted_s + self._smoothing * self._window_s

    def metrics(self) -> dict[str, float]:
        """The window."""
        return {"window_s": self._window_s}

    def state_dict(self) -> dict[str, Any]:
        """The window."""
        return {"window_s": self._window_s}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state from `state_dict`."""
        self._window_s = float(state["window_s"])
