"""Drawing from a process, on a clock or on a grid of fixed times; many people at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.synth.model import BLOCKS, DWELL_LEVELS, HOURS, WEEK_H, WEEKEND_H, Grid, Process, part_of_day

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
LEAD_IN_H = 24.0
"""Everybody begins on the Sunday before, in the middle of a period; that day is thrown away."""
_FINE = 1024
_ROUND = 16
"""Periods that everybody walks between two looks at who is done; an even number."""
_LONGEST_DWELL_WEEKS = 520.0  # ten years: a phone that is left alone stays countable


@dataclass(frozen=True, slots=True, eq=False)
class DrawnPeriods:
    """A channel of many people from Sunday 0:00 on, sorted by person and time.

    Attributes:
        person: Whose.
        start_h: From when, hours since the Monday of the week before; Sunday 0:00 for each person's first.
        end_h: Until when; at most until the end of what was asked for.
        on: The state; it alternates.
    """

    person: Indices
    start_h: Array
    end_h: Array
    on: NDArray[np.bool_]


class Persons:
    """Who somebody is: chance that is drawn once per person.

    Attributes:
        kind: Class of each person.
        pace: Factor on the rates, for off and for on.
    """

    def __init__(self, process: Process, people: int, rng: np.random.Generator) -> None:
        weight = np.cumsum([kind.weight for kind in process.classes])
        kind = np.searchsorted(weight, rng.random(people) * weight[-1], side="right")
        self.kind = np.minimum(kind, len(weight) - 1)
        common = rng.standard_normal(people) * process.pace_sigma
        own = rng.standard_normal((people, 2)) * np.array(process.state_sigma)
        self.pace = np.exp(common[:, None] + own)
        self._on = np.array([kind.on_at_midnight for kind in process.classes])
        self._chance = rng.random(people)

    def state(self, regime: Indices) -> Indices:
        """The state at midnight of the first persons, given their regimes."""
        share = self._on[self.kind[: len(regime)], regime]
        return np.asarray(self._chance[: len(regime)] < share, np.int64)


def rates_by_week(process: Process) -> Array:
    """Departures per hour: class x regime x state x hour of the week."""
    hour = np.arange(WEEK_H)
    rates = np.array([kind.leave_per_h for kind in process.classes])
    return np.asarray(rates[..., (hour >= WEEKEND_H).astype(int), hour % HOURS])


class ProcessSampler:
    """A process prepared for drawing."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.regimes = process.regimes
        # One clock per class, regime and state: the amount it has run at each full hour of the week.
        rate = rates_by_week(process).reshape(-1, WEEK_H)
        self._rate = np.pad(rate, ((0, 0), (0, 1))).ravel()  # as many columns as the amounts have
        run = np.concatenate([np.zeros((len(rate), 1)), np.cumsum(rate, axis=1)], axis=1)
        self._per_week = run[:, -1].copy()
        # The clocks lie behind one another in one increasing table, so that one search serves them all.
        self._base = np.concatenate([[0.0], np.cumsum(self._per_week + 1.0)[:-1]])
        self._run = (run + self._base[:, None]).ravel()
        self._hour = np.tile(np.arange(WEEK_H + 1.0), len(rate))
        fine = np.linspace(0.0, 1.0, _FINE + 1)
        rows = [row for kind in process.classes for dwells in kind.stay or () for row in dwells]
        dwells = [np.interp(fine, DWELL_LEVELS, row) for row in rows]
        self._dwell = np.concatenate(dwells)
        self._remaining = np.concatenate([_remaining(row) for row in dwells])

    def draw(
        self,
        people: int,
        hours: float,
        rng: np.random.Generator,
        given: DrawnPeriods | None = None,
        *,
        batch: int | None = None,
    ) -> DrawnPeriods:
        """The channel of ``people`` persons; a person's does not depend on the others'.

        Args:
            people: How many.
            hours: From Monday 0:00 on; there is a day before.
            rng: Where chance comes from.
            given: The channel that the process is given, of the same people.
            batch: Chance is drawn for so many, of whom these people are the first.
        """
        n = people if batch is None else batch
        drawn = Persons(self.process, n, rng)
        regime = _Regime(people, given)
        kind = drawn.kind[:people]
        state = drawn.state(regime.first)
        walk = _Walk(self, kind, drawn.pace, regime, WEEK_H + hours)
        return walk.everybody(state, lambda: rng.random((_ROUND, n)))

    def _row(self, clock: Indices, t_h: Array) -> tuple[Indices, Indices]:
        """The full hour, and where the tables tell about it."""
        hour = t_h.astype(np.int64)
        return hour, clock * (WEEK_H + 1) + (hour - hour // WEEK_H * WEEK_H)

    def after(self, clock: Indices, t_h: Array, amount: Array) -> Array:
        """The time at which a clock has run an amount further."""
        hour, row = self._row(clock, t_h)
        end_h: Array = t_h + amount / self._rate[row]
        beyond = np.flatnonzero(end_h > hour + 1)  # there the rate is another one
        if len(beyond):
            clock, hour, row = clock[beyond], hour[beyond], row[beyond]
            run = self._run[row] + (t_h[beyond] - hour) * self._rate[row] + amount[beyond]
            end_h[beyond] = hour - self._hour[row] + self._reached(clock, run)
        return end_h

    def _reached(self, clock: Indices, run: Array) -> Array:
        """Hours since Monday 0:00 at which a clock (with its base) has run an amount, weeks on if need be."""
        per_week = self._per_week[clock]
        weeks = np.floor((run - self._base[clock]) / per_week)
        place = np.interp(run - weeks * per_week, self._run, self._hour)
        return np.asarray(np.minimum(weeks, _LONGEST_DWELL_WEEKS) * WEEK_H + place)

    def between(self, clock: Indices, begin_h: Array, end_h: Array) -> Array:
        """The amount that a clock runs from one time to another."""
        (hour, row), (last_hour, last_row) = self._row(clock, begin_h), self._row(clock, end_h)
        run = self._run[row] + (begin_h - hour) * self._rate[row]
        last = self._run[last_row] + (end_h - last_hour) * self._rate[last_row]
        weeks = (last_hour // WEEK_H - hour // WEEK_H) * self._per_week[clock]
        return np.asarray(last - run + weeks)

    def dwell(self, case: Indices, t_h: Array, u: Array, *, under_way: bool) -> Array:
        """Amount of clock to spend in a state entered at a time; or what remains, if it is under way.

        Args:
            case: The class and the state: ``2 * class + state``.
            t_h: When it was entered.
            u: Evenly distributed chance.
            under_way: It was entered before.
        """
        table = self._remaining if under_way else self._dwell
        x = u * _FINE
        i = x.astype(np.int64)
        row = (case * BLOCKS + part_of_day(t_h)) * (_FINE + 1) + i
        low = table[row]
        return np.asarray(low + (x - i) * (table[row + 1] - low))


class _Regime:
    """What the given channel is at any time, and when it changes next."""

    def __init__(self, people: int, given: DrawnPeriods | None) -> None:
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
    """Everybody from period to period until the end."""

    def __init__(
        self, sampler: ProcessSampler, kind: Indices, pace: Array, regime: _Regime, end_h: float
    ) -> None:
        self._sampler = sampler
        self._kind = kind
        self._pace = pace
        self._regime = regime
        self._end_h = end_h

    def everybody(self, state: Indices, draw: Callable[[], Array]) -> DrawnPeriods:
        who = np.arange(len(state))
        t_h = np.full(len(state), WEEK_H - LEAD_IN_H)
        first_state = state
        rounds: list[tuple[Indices, Array]] = []
        while len(who):
            # Drawn for everybody, also for those who are done, so that nobody depends on the others.
            starts, t_h = self._round(who, state, t_h, draw()[:, who], under_way=not rounds)
            rounds.append((who, starts))
            going = np.flatnonzero(t_h < self._end_h)
            who, t_h, state = who[going], t_h[going], state[going]
        return _by_person(rounds, self._end_h, first_state)

    def _round(
        self, who: Indices, state: Indices, t_h: Array, chance: Array, *, under_way: bool
    ) -> tuple[Array, Array]:
        """Where the next periods begin (period x person), and where the last of them ends.

        Whoever reaches the end remains there, for periods without length.
        """
        kind = self._kind[who]
        # What depends on the state, for the one now and the other one; they take turns.
        states = (state, 1 - state)
        cases = [kind * 2 + one for one in states]
        clocks = [kind * (2 * self._sampler.regimes) + one for one in states]
        paces = [self._pace[who, one] for one in states]
        starts = np.empty(chance.shape)
        for period, u in enumerate(chance):
            starts[period] = t_h
            turn = period % 2
            amount = self._sampler.dwell(cases[turn], t_h, u, under_way=under_way and period == 0)
            t_h = np.minimum(self._end_of(who, clocks[turn], t_h, amount / paces[turn]), self._end_h)
        return starts, t_h

    def _end_of(self, who: Indices, clock: Indices, t_h: Array, amount: Array) -> Array:
        """When each person's period ends, across changes of regime."""
        if self._sampler.regimes == 1:
            return self._sampler.after(clock, t_h, amount)
        end_h = np.empty(len(who))
        open_ = np.arange(len(who))
        while True:
            regime, until_h = self._regime.now(who)
            now = clock + 2 * regime
            reached = self._sampler.after(now, t_h, amount)
            end_h[open_] = reached
            late = np.flatnonzero((reached >= until_h) & (until_h < self._end_h))
            if not len(late):
                return end_h
            self._regime.advance(who[late])
            run = self._sampler.between(now[late], t_h[late], until_h[late])
            amount = np.maximum(amount[late] - run, 0.0)
            open_, who, clock, t_h = open_[late], who[late], clock[late], until_h[late]


def _by_person(rounds: list[tuple[Indices, Array]], end_h: float, first_state: Indices) -> DrawnPeriods:
    """Everybody takes part from the first round on, so the place of each period is known without sorting."""
    taken = np.zeros(len(first_state), np.int64)
    for who, _ in rounds:
        taken[who] += 1
    row = np.cumsum(taken) - taken
    starts = np.empty((int(taken.sum()), _ROUND))
    for number, (who, begun_h) in enumerate(rounds):
        starts[row[who] + number] = begun_h.T
    real = starts < end_h
    start_h = starts[real]
    periods = np.add.reduceat(np.count_nonzero(real, axis=1), row)
    first = np.cumsum(periods) - periods
    until_h = np.append(start_h[1:], end_h)
    until_h[first + periods - 1] = end_h
    # The state alternates, so it depends on whether the place of a period is even.
    on = np.repeat((first + first_state) % 2 == 1, periods)
    on[1::2] ^= True
    return DrawnPeriods(np.repeat(np.arange(len(periods)), periods), start_h, until_h, on)


def _remaining(quantile: Array) -> Array:
    """Quantiles of what is left of a dwell time at a random moment; its density is the share still there."""
    u = np.linspace(0.0, 1.0, len(quantile))
    there = np.append(1.0, 1.0 - (u[1:] + u[:-1]) / 2)
    passed = np.append(0.0, np.cumsum(np.diff(quantile, prepend=0.0) * there))
    return np.asarray(np.interp(u, passed / passed[-1], np.append(0.0, quantile)))


class GridSampler:
    """A process on a grid, prepared for drawing."""

    def __init__(self, process: Process, grid: Grid) -> None:
        self.process = process
        self._step_h = grid.step_h
        self._rate = rates_by_week(process)[:, 0]
        longest = max(map(len, grid.factor))
        self._factor = np.array([(*row, *row[-1:] * (longest - len(row))) for row in grid.factor])

    def draw(
        self,
        people: int,
        hours: float,
        rng: np.random.Generator,
        given: DrawnPeriods | None = None,
        *,
        batch: int | None = None,
    ) -> DrawnPeriods:
        """As `ProcessSampler.draw`; a process on a grid is given no other."""
        n = people if batch is None else batch
        drawn = Persons(self.process, n, rng)
        kind, pace, who = drawn.kind[:people], drawn.pace[:people], np.arange(people)
        state = drawn.state(np.zeros(people, np.int64))
        spent = np.zeros(people, np.int64)
        last = self._factor.shape[1] - 1
        # From the Monday before: after one day alone, nobody could have been left alone for longer than that.
        states = np.empty((int(np.ceil((WEEK_H + hours) / self._step_h)), people), bool)
        for step in range(len(states)):
            states[step] = state
            hour = int(step * self._step_h) % WEEK_H
            rate = self._rate[kind, state, hour] * self._factor[state, np.minimum(spent, last)]
            leaves = rng.random(n)[:people] < rate * pace[who, state] * self._step_h
            state = state ^ leaves
            spent = np.where(leaves, 0, spent + 1)
        first = int((WEEK_H - LEAD_IN_H) / self._step_h)
        return self._changes(states[first:], first * self._step_h, WEEK_H + hours)

    def _changes(self, states: NDArray[np.bool_], begin_h: float, end_h: float) -> DrawnPeriods:
        changed = np.ones_like(states)
        changed[1:] = states[1:] != states[:-1]
        person, step = np.nonzero(changed.T)
        start_h: NDArray[np.float64] = begin_h + step * np.float64(self._step_h)
        until_h = np.append(start_h[1:], end_h)
        until_h[:-1][person[1:] != person[:-1]] = end_h
        return DrawnPeriods(person, start_h, until_h, states[step, person])


Sampler = ProcessSampler | GridSampler


def sampler_of(process: Process) -> Sampler:
    """Prepare a process for drawing."""
    return ProcessSampler(process) if process.grid is None else GridSampler(process, process.grid)
