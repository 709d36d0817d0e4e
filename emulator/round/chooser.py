"""`Chooser`: asks a selector, checks what it answers, and takes the time it needs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from emulator.round.outcome import RoundOutcome
from emulator.round.rules import RoundRules
from emulator.round.selector import Selector
from emulator.round.view import PRIVILEGED_FIELDS, VIEW_FIELDS, Ids, ServerView
from joulefleet.errors import ConfigError, JoulefleetError
from joulefleet.seeds import generator


class Chooser:
    """The engine's side of the seam to selectors.

    Args:
        selector: Who chooses.
        rules: What is asked for.
        seed: Root of the generators it is handed.

    Attributes:
        overhead_s: Time on the wall that the selector took since `begin`.
    """

    def __init__(self, selector: Selector, rules: RoundRules, seed: int) -> None:
        _check_needs(selector)
        self.selector = selector
        self._rules = rules
        self._seed = seed
        self.overhead_s = 0.0

    def begin(self) -> None:
        """A new round."""
        self.overhead_s = 0.0

    def candidates(self, view: ServerView) -> Ids:
        """Devices to consider, ascending."""
        # A stream of its own: methods that probe at random get the same candidates.
        rng = generator(self._seed, "candidates", view.round)
        with self._timed():
            found = self.selector.candidates(view, self._rules.candidates, rng)
        found = np.sort(np.asarray(found, np.int64))
        if np.any(found[1:] == found[:-1]) or not view.eligible[found].all():
            raise self._misbehaved("considers devices twice or that have not checked in")
        return found

    def choose(self, view: ServerView, candidates: Ids) -> tuple[Ids, Ids]:
        """The chosen, ascending, and how many local epochs each is to train."""
        if not len(candidates):  # all of them left during their probe
            return candidates, np.empty(0, np.int64)
        wanted = self._rules.wanted
        rng = generator(self._seed, "selection", view.round)
        with self._timed():
            found = self.selector.select(view, candidates, wanted, rng)
            chosen = np.sort(np.asarray(found, np.int64))
            epochs = np.asarray(self.selector.epochs(view, chosen), np.int64)
        self.check(chosen, candidates, wanted)
        most = self._rules.local_epochs
        if len(epochs) != len(chosen) or np.any((epochs < 1) | (epochs > most)):
            raise self._misbehaved(f"wants other than 1 to {most} epochs for each")
        return chosen, epochs

    def probe_is_idle(self, candidates: Ids) -> bool:
        """Whether a probe would decide nothing, and the method can do without."""
        return self.selector.probe_optional and len(candidates) <= self._rules.wanted

    def observe(self, view: ServerView, outcome: RoundOutcome) -> None:
        """Tell how the round went; of what was reported, only what the selector declared."""
        shown = outcome.restricted(self.selector.needs)
        with self._timed():
            self.selector.observe(view, shown)

    def check(self, chosen: Ids, candidates: Ids, wanted: int) -> None:
        """Refuse a choice that the rules do not allow."""
        if np.any(chosen[1:] == chosen[:-1]) or not np.isin(chosen, candidates).all():
            raise self._misbehaved("chose devices twice or that are no candidates")
        if len(chosen) > wanted:
            raise self._misbehaved(f"chose {len(chosen)} devices where {wanted} were asked for")

    @contextmanager
    def _timed(self) -> Iterator[None]:
        begin_s = time.perf_counter()
        yield
        self.overhead_s += time.perf_counter() - begin_s

    def _misbehaved(self, what: str) -> JoulefleetError:
        return JoulefleetError(f"selector {self.selector.name!r} {what}", hint="report this to its author")


def check_size(selector: Selector, devices: int) -> None:
    """Refuse a fleet that is too large for the method, before anything is trained for it."""
    if selector.most_devices is not None and devices > selector.most_devices:
        raise ConfigError(
            f"selector {selector.name!r} serves at most {selector.most_devices:,} devices, not {devices:,}: "
            "what it keeps grows with the fleet",
            hint="use a smaller fleet, or another selector",
        )


def _check_needs(selector: Selector) -> None:
    unknown = sorted(selector.needs - VIEW_FIELDS)
    if unknown:
        raise ConfigError(
            f"selector {selector.name!r} needs {unknown[0]!r}, which no view has",
            hint=f"known: {', '.join(sorted(VIEW_FIELDS))}",
        )
    if unheard := sorted(selector.learns_from - {"device_rewards"}):
        raise ConfigError(f"selector {selector.name!r} learns from {unheard[0]!r}, which no outcome has")
    secret = sorted(selector.needs & PRIVILEGED_FIELDS)
    if secret and not selector.privileged:
        raise ConfigError(
            f"selector {selector.name!r} needs {secret[0]!r}, which no server could know",
            hint="an oracle says so with `privileged = True`",
        )
