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
_FINE = 4096
_DRAWS = 64
_LEAD_IN_H = 24.0
"""Everybody begins on the Sunday before, in the middle of a spell; that day is thrown away."""
_LONGEST_STAY_WEEKS = 520.0  # ten years: a phone that is left alone stays countable


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """The states of many people from hour 0 on, sorted by person and time.

    Attributes:
        person: Whose.
        start_h: From when, hours since Monday 0:00; 0 for the first of each person.
        end_h: Until when.
        state: Which; never the same twice in a row.
    """

    person: Indices
    start_h: Array
    end_h: Array
    state: Indices


class ProcessSampler:
    """A process prepared for drawing."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.states = process.states
        self._weight = np.cumsum([kind.weight for kind in process.classes])
        self._start = np.cumsum([kind.start for kind in process.classes], axis=1)
        self._goes_to = np.cumsum([kind.goes_to for kind in process.classes], axis=3)
        week = np.array([kind.leave_per_h for kind in process.classes])
        # One clock per class and state: the amount it has run at each full hour of the week.
        hour = np.arange(WEEK_H)
        rate = week[:, :, (hour >= WEEKEND_H).astype(int), hour % HOURS].reshape(-1, WEEK_H)
        run = np.concatenate([np.zeros((len(rate), 1)), np.cumsum(rate, axis=1)], axis=1)
        self._per_week = run[:, -1].copy()
        # The clocks lie behind one another in one increasing table, so that one search serves them all.
        self._base = np.concatenate([[0.0], np.cumsum(self._per_week + 1.0)[:-1]])
        self._run = (run + self._base[:, None]).ravel()
        self._hour = np.tile(np.arange(WEEK_H + 1.0), len(rate))
        fine = np.linspace(0.0, 1.0, _FINE + 1)
        stays = [np.interp(fine, STAY_LEVELS, row) for parts in process.stay for row in parts]
        self._stay = np.concatenate(stays)
        self._remaining = np.concatenate([_remaining(row) for row in stays])

    def draw(self, people: int, hours: float, rng: np.random.Generator) -> Changes:
        """States of ``people`` persons over ``hours`` hours; a person's do not depend on the others'."""
        kind = np.searchsorted(self._weight, rng.random(people) * self._weight[-1], side="right")
        kind = np.minimum(kind, len(self._weight) - 1)
        state = _chosen(self._start[kind], rng.random(people))
        return _Walk(self, kind, self._paces(people, rng), hours).states(state, rng)

    def _paces(self, people: int, rng: np.random.Generator) -> Array:
        """Each person's factor on the rate of each state."""
        common = rng.standard_normal(people) * self.process.pace_sigma
        own = rng.standard_normal((people, self.states)) * np.array(self.process.state_sigma)
        return np.asarray(np.exp(common[:, None] + own))

    def after(self, clock: Indices, t_h: Array, amount: Array) -> Array:
        """The time at which a clock has run an amount further."""
        week, hour = np.divmod(t_h, WEEK_H)
        at = hour.astype(np.int64)
        row = clock * (WEEK_H + 1) + at
        begun = self._run[row]
        per_week, base = self._per_week[clock], self._base[clock]
        run = begun + (hour - at) * (self._run[row + 1] - begun) - base + amount
        more = np.floor(run / per_week)
        run -= more * per_week
        place = np.interp(run + base, self._run, self._hour)
        return np.asarray((week + np.minimum(more, _LONGEST_STAY_WEEKS)) * WEEK_H + place)

    def stay(self, state: Indices, t_h: Array, u: Array, *, under_way: bool = False) -> Array:
        """Amount of clock to spend in a state entered at a time; or what remains, if it is under way."""
        table = self._remaining if under_way else self._stay
        x = u * _FINE
        i = x.astype(np.int64)
        row = (state * BLOCKS + part_of_day(t_h)) * (_FINE + 1) + i
        low = table[row]
        return np.asarray(low + (x - i) * (table[row + 1] - low))

    def next_state(self, kind: Indices, state: Indices, t_h: Array, u: Array) -> Indices:
        """Where a person goes from a state."""
        return _chosen(self._goes_to[kind, state, part_of_day(t_h)], u)


class _Walk:
    """Everybody from spell to spell until the end."""

    def __init__(self, sampler: ProcessSampler, kind: Indices, pace: Array, hours: float) -> None:
        self._sampler = sampler
        self._kind = kind
        self._pace = pace
        self._begin_h = WEEK_H - _LEAD_IN_H
        self._end_h = WEEK_H + hours

    def states(self, state: Indices, rng: np.random.Generator) -> Changes:
        people = len(state)
        who = np.arange(people)
        t_h = np.full(people, self._begin_h)
        rounds: list[tuple[Indices, Array, Array, Indices]] = []
        two = self._sampler.states == 2
        while len(who):
            # Drawn for everybody, also for those who are done, so that nobody depends on the others.
            stay = rng.random((_DRAWS, people))
            where = stay if two else rng.random((_DRAWS, people))
            for step in range(_DRAWS):
                u = stay[step] if len(who) == people else stay[step][who]
                amount = self._sampler.stay(state, t_h, u, under_way=not rounds)
                clock = self._kind[who] * self._sampler.states + state
                end_h = self._sampler.after(clock, t_h, amount / self._pace[who, state])
                rounds.append((who, t_h, end_h, state))
                going = np.flatnonzero(end_h < self._end_h)
                kept = state[going]
                who, t_h = who[going], end_h[going]
                state = (
                    1 - kept
                    if two
                    else self._sampler.next_state(self._kind[who], kept, t_h, where[step][who])
                )
                if not len(who):
                    break
        return self._cut(rounds)

    def _cut(self, rounds: list[tuple[Indices, Array, Array, Indices]]) -> Changes:
        """Without the lead-in, by person; the rounds are in the order of time."""
        person, start_h, end_h, state = (np.concatenate(column) for column in zip(*rounds, strict=True))
        order = np.argsort(person.astype(np.int32), kind="stable")
        order = order[end_h[order] > WEEK_H]
        start = np.maximum(start_h[order] - WEEK_H, 0.0)
        end = np.minimum(end_h[order], self._end_h) - WEEK_H
        return Changes(person[order], start, end, state[order])


def _chosen(cumulated: Array, u: Array) -> Indices:
    """One column per row, by its odds."""
    column = (u[:, None] * cumulated[:, -1:] >= cumulated).sum(axis=1)
    return np.minimum(column, cumulated.shape[1] - 1)


def _remaining(quantile: Array) -> Array:
    """Quantiles of what remains of a stay at a random moment, whose density is the share still there."""
    u = np.linspace(0.0, 1.0, len(quantile))
    passed = np.concatenate([[0.0], np.cumsum(np.diff(quantile) * (1.0 - (u[1:] + u[:-1]) / 2))])
    return np.interp(u, passed / passed[-1], quantile) if passed[-1] > 0 else quantile
