"""Drawing from a process, many people at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.synth.model import BLOCKS, HOURS, STAY_LEVELS, Process
from traces.synth.spells import WEEK_H, WEEKEND_H
from traces.synth.stay import part_of_day

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
LEAD_IN_H = 24.0
"""Everybody begins on the Sunday before, in the middle of a spell; that day is thrown away."""
_FINE = 1024
_DRAWS = 64
_LONGEST_STAY_WEEKS = 520.0  # ten years: a phone that is left alone stays countable


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """A channel of many people from Sunday 0:00 on, sorted by person and time.

    Attributes:
        person: Whose.
        start_h: From when, hours since the Monday of the week before; Sunday 0:00 for each person's first.
        end_h: Until when; may lie beyond what was asked for.
        on: The state; it alternates.
    """

    person: Indices
    start_h: Array
    end_h: Array
    on: NDArray[np.bool_]


class ProcessSampler:
    """A process prepared for drawing."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.regimes = process.regimes
        self._weight = np.cumsum([kind.weight for kind in process.classes])
        self._on = np.array([kind.on_at_midnight for kind in process.classes])
        rates = np.array([kind.leave_per_h for kind in process.classes])
        # One clock per class, regime and state: the amount it has run at each full hour of the week.
        hour = np.arange(WEEK_H)
        rate = rates[..., (hour >= WEEKEND_H).astype(int), hour % HOURS].reshape(-1, WEEK_H)
        run = np.concatenate([np.zeros((len(rate), 1)), np.cumsum(rate, axis=1)], axis=1)
        self._per_week = run[:, -1].copy()
        # The clocks lie behind one another in one increasing table, so that one search serves them all.
        self._base = np.concatenate([[0.0], np.cumsum(self._per_week + 1.0)[:-1]])
        self._run = (run + self._base[:, None]).ravel()
        self._hour = np.tile(np.arange(WEEK_H + 1.0), len(rate))
        fine = np.linspace(0.0, 1.0, _FINE + 1)
        rows = [row for kind in process.classes for stays in kind.stay for row in stays]
        stays = [np.interp(fine, STAY_LEVELS, row) for row in rows]
        self._stay = np.concatenate(stays)
        self._remaining = np.concatenate([_remaining(row) for row in stays])

    def draw(
        self, people: int, hours: float, rng: np.random.Generator, given: Changes | None = None
    ) -> Changes:
        """The channel of ``people`` persons; a person's does not depend on the others'.

        Args:
            people: How many.
            hours: From Monday 0:00 on; there is a day before.
            rng: Where chance comes from.
            given: The channel that the process is given, of the same people.
        """
        kind = np.searchsorted(self._weight, rng.random(people) * self._weight[-1], side="right")
        kind = np.minimum(kind, len(self._weight) - 1)
        common = rng.standard_normal(people) * self.process.pace_sigma
        own = rng.standard_normal((people, 2)) * np.array(self.process.state_sigma)
        pace = np.exp(common[:, None] + own)
        regime = _Regime(people, given)
        on = rng.random(people) < self._on[kind, regime.first]
        walk = _Walk(self, kind, pace, regime, WEEK_H + hours)
        return walk.everybody(on.astype(np.int64), rng)

    def run(self, clock: Indices, t_h: Array) -> tuple[Indices, Array]:
        """Full weeks, and the amount that a clock has run since (with its base)."""
        hour = t_h.astype(np.int64)
        week = hour // WEEK_H
        row = clock * (WEEK_H + 1) + (hour - week * WEEK_H)
        begun = self._run[row]
        return week, begun + (t_h - hour) * (self._run[row + 1] - begun)

    def after(self, clock: Indices, t_h: Array, amount: Array) -> Array:
        """The time at which a clock has run an amount further."""
        week, run = self.run(clock, t_h)
        per_week, base = self._per_week[clock], self._base[clock]
        run += amount - base
        more = np.floor(run / per_week)
        run += base - more * per_week
        place = np.interp(run, self._run, self._hour)
        return np.asarray((week + np.minimum(more, _LONGEST_STAY_WEEKS)) * WEEK_H + place)

    def between(self, clock: Indices, begin_h: Array, end_h: Array) -> Array:
        """The amount that a clock runs from one time to another."""
        first_week, first = self.run(clock, begin_h)
        last_week, last = self.run(clock, end_h)
        return np.asarray(last - first + (last_week - first_week) * self._per_week[clock])

    def stay(self, kind: Indices, state: Indices, t_h: Array, u: Array, *, under_way: bool) -> Array:
        """Amount of clock to spend in a state entered at a time; or what remains, if it is under way."""
        table = self._remaining if under_way else self._stay
        x = u * _FINE
        i = x.astype(np.int64)
        row = ((kind * 2 + state) * BLOCKS + part_of_day(t_h)) * (_FINE + 1) + i
        low = table[row]
        return np.asarray(low + (x - i) * (table[row + 1] - low))


class _Regime:
    """What the given channel is at any time, and when it changes next."""

    def __init__(self, people: int, given: Changes | None) -> None:
        self._given = given
        self.first = np.zeros(people, np.int64)
        if given is not None:
            self._at = np.searchsorted(given.person, np.arange(people))
            self.first = given.on[self._at].astype(np.int64)

    def now(self, who: Indices) -> tuple[Indices, Array]:
        """The regime of each person, and until when."""
        if self._given is None:
            return np.zeros(len(who), np.int64), np.full(len(who), np.inf)
        at = self._at[who]
        return self._given.on[at].astype(np.int64), self._given.end_h[at]

    def advance(self, who: Indices) -> None:
        """These people have come to the end of a regime."""
        self._at[who] += 1


class _Walk:
    """Everybody from spell to spell until the end."""

    def __init__(
        self, sampler: ProcessSampler, kind: Indices, pace: Array, regime: _Regime, end_h: float
    ) -> None:
        self._sampler = sampler
        self._kind = kind
        self._pace = pace
        self._regime = regime
        self._end_h = end_h

    def everybody(self, state: Indices, rng: np.random.Generator) -> Changes:
        people = len(state)
        who = np.arange(people)
        t_h = np.full(people, WEEK_H - LEAD_IN_H)
        first_state = state
        rounds: list[tuple[Indices, Array]] = []
        last_h = np.empty(people)
        while len(who):
            # Drawn for everybody, also for those who are done, so that nobody depends on the others.
            chance = rng.random((_DRAWS, people))
            for u in chance:
                mine = u if len(who) == people else u[who]
                kind = self._kind[who]
                amount = self._sampler.stay(kind, state, t_h, mine, under_way=not rounds)
                end_h = self._end_of(who, kind, state, t_h, amount / self._pace[who, state])
                rounds.append((who, t_h))
                last_h[who] = end_h
                going = np.flatnonzero(end_h < self._end_h)
                who, t_h, state = who[going], end_h[going], 1 - state[going]
                if not len(who):
                    break
        return _by_person(rounds, last_h, first_state)

    def _end_of(self, who: Indices, kind: Indices, state: Indices, t_h: Array, amount: Array) -> Array:
        """When each person's spell ends, across changes of regime."""
        if self._sampler.regimes == 1:
            return self._on_grid(t_h, self._sampler.after(kind * 2 + state, t_h, amount))
        end_h = np.empty(len(who))
        begin_h, t_h = t_h, t_h.copy()
        open_ = np.arange(len(who))
        while len(open_):
            people = who[open_]
            regime, until_h = self._regime.now(people)
            clock = (kind[open_] * 2 + regime) * 2 + state[open_]
            reached = self._sampler.after(clock, t_h[open_], amount[open_])
            end_h[open_] = reached
            crosses = np.flatnonzero((reached >= until_h) & (until_h < self._end_h))
            crossing = open_[crosses]
            amount[crossing] -= self._sampler.between(clock[crosses], t_h[crossing], until_h[crosses])
            np.maximum(amount, 0.0, out=amount)
            t_h[crossing] = until_h[crosses]
            self._regime.advance(people[crosses])
            open_ = crossing
        return self._on_grid(begin_h, end_h)

    def _on_grid(self, t_h: Array, end_h: Array) -> Array:
        """The first reading after the end of a spell."""
        grid_h = self._sampler.process.grid_h
        if grid_h is None:
            return end_h
        return np.asarray(np.maximum(np.ceil(end_h / grid_h) * grid_h, t_h + grid_h))


def _by_person(rounds: list[tuple[Indices, Array]], last_h: Array, first_state: Indices) -> Changes:
    """Everybody takes part from the first round on, so the place of each spell is known without sorting."""
    spells = np.zeros(len(last_h), np.int64)
    for who, _ in rounds:
        spells[who] += 1
    first = np.cumsum(spells) - spells
    start_h = np.empty(int(spells.sum()))
    for number, (who, t_h) in enumerate(rounds):
        start_h[first[who] + number] = t_h
    end_h = np.append(start_h[1:], 0.0)
    end_h[first + spells - 1] = last_h
    person = np.repeat(np.arange(len(last_h)), spells)
    turn = np.arange(len(start_h)) - first[person] + first_state[person]
    return Changes(person, start_h, end_h, (turn & 1).astype(bool))


def _remaining(quantile: Array) -> Array:
    """Quantiles of what remains of a stay at a random moment, whose density is the share still there."""
    u = np.linspace(0.0, 1.0, len(quantile))
    there = np.append(1.0, 1.0 - (u[1:] + u[:-1]) / 2)
    passed = np.append(0.0, np.cumsum(np.diff(quantile, prepend=0.0) * there))
    return np.asarray(np.interp(u, passed / passed[-1], np.append(0.0, quantile)))
