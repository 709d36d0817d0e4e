"""Drawing from a process whose state changes at fixed times only; and the sampler that a process takes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traces.synth.draw.process import LEAD_IN_H, DrawnPeriods, Persons, ProcessSampler, rates_by_week
from traces.synth.model import WEEK_H, Grid, Process


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
