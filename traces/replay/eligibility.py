"""A policy worked out once for every user: the moments at which its answer changes.

Afterwards "who is eligible at t" is one look-up per device, however complicated the policy. A battery level
that drifts through a limit between two readings is followed to the nanosecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.replay.flags import TRUE
from traces.replay.flat import FlatTraces
from traces.replay.policy import BatteryTerm, Policy, Truth, battery_terms, evaluate
from traces.replay.steps import Steps


@dataclass(frozen=True, slots=True, eq=False)
class Eligibility:
    """When each user is eligible under one policy.

    Attributes:
        steps: The moments at which the answer changes.
        yes: The answer from then on.
    """

    steps: Steps
    yes: NDArray[np.bool_]


def eligibility_of(flat: FlatTraces, policy: Policy) -> Eligibility:
    """The answer of a policy for every user at every time."""
    terms = battery_terms(policy)
    if not terms:
        yes = evaluate(policy, flat.flags, {}) == TRUE
        return _where_it_changes(flat.state.user_of_step(), flat.state.t_ns, yes, len(flat))
    user, t_ns, state, charge = _merged(flat, _crossings(flat, terms))
    level = level_at(flat, charge, t_ns)
    truths: dict[BatteryTerm, Truth] = {term: term.holds(level) for term in terms}
    return _where_it_changes(user, t_ns, evaluate(policy, flat.flags.take(state), truths) == TRUE, len(flat))


def level_at(flat: FlatTraces, step: NDArray[np.integer], x_ns: NDArray[np.int64]) -> NDArray[np.float64]:
    """The battery level in a step of ``flat.battery`` at a time since the user's start."""
    elapsed_ns = x_ns - flat.battery.t_ns.take(step)
    return flat.level.take(step) + flat.slope_per_ns.take(step) * elapsed_ns


def _crossings(
    flat: FlatTraces, terms: tuple[BatteryTerm, ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Battery steps inside which a comparison flips, and the first nanosecond after the flip."""
    step_parts, time_parts = [], []
    t_ns = flat.battery.t_ns
    step = np.flatnonzero(flat.slope_per_ns)
    first, last = t_ns[step], t_ns[step + 1] - 1
    for term in terms:
        before = term.holds(level_at(flat, step, first))
        flips = np.flatnonzero(before != term.holds(level_at(flat, step, last)))
        low, high, inside = first[flips], last[flips], step[flips]
        # Bisect with the very arithmetic of `level_at`: both then agree at every nanosecond.
        while np.any(high - low > 1):
            middle = (low + high) >> 1
            same = term.holds(level_at(flat, inside, middle)) == before[flips]
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        step_parts.append(inside)
        time_parts.append(high)
    return np.concatenate(step_parts), np.concatenate(time_parts)


def _merged(
    flat: FlatTraces, crossings: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """State steps, battery steps and crossings in one order: user, time, state step and battery step."""
    events, charge = _with_crossings(flat.battery, *crossings)
    event_user, state_user = events.user_of_step(), flat.state.user_of_step()
    # The index says what is in force, hence how many entries come before: a merge without sorting.
    event_of_state = events.at(state_user, flat.state.t_ns)
    state_of_event = flat.state.at(event_user, events.t_ns)
    earlier = flat.state.t_ns.take(state_of_event) < events.t_ns
    at_event = np.arange(len(events)) + state_of_event + earlier
    at_state = np.arange(len(flat.state)) + event_of_state + 1

    def merge(of_state: NDArray[Any], of_event: NDArray[Any]) -> NDArray[Any]:
        merged = np.empty(len(of_state) + len(of_event), of_state.dtype)
        merged[at_state], merged[at_event] = of_state, of_event
        return merged

    user, t_ns = merge(state_user, event_user), merge(flat.state.t_ns, events.t_ns)
    state = merge(np.arange(len(flat.state), dtype=np.int32), state_of_event)
    charge = merge(charge.take(event_of_state), charge)
    once = np.append((t_ns[1:] != t_ns[:-1]) | (user[1:] != user[:-1]), True)
    return user[once], t_ns[once], state[once], charge[once]


def _with_crossings(
    battery: Steps, inside: NDArray[np.int64], t_ns: NDArray[np.int64]
) -> tuple[Steps, NDArray[np.int64]]:
    """Battery steps cut at the crossings, and the battery step each piece belongs to."""
    order = np.lexsort((t_ns, inside))
    inside, t_ns = inside[order], t_ns[order]
    # Two comparisons may flip at one nanosecond.
    once = np.append((t_ns[1:] != t_ns[:-1]) | (inside[1:] != inside[:-1]), True)[: len(t_ns)]
    inside, t_ns = inside[once], t_ns[once]
    pieces = np.insert(battery.t_ns, inside + 1, t_ns)
    charge = np.insert(np.arange(len(battery)), inside + 1, inside)
    offset = battery.offset + np.searchsorted(inside, battery.offset)
    return Steps.index(pieces, offset), charge


def _where_it_changes(
    user: NDArray[np.int32], t_ns: NDArray[np.int64], yes: NDArray[np.bool_], users: int
) -> Eligibility:
    """Only the steps at which the answer changes, and the first and last of every user."""
    keep = np.ones(len(yes), bool)
    keep[1:-1] = (yes[1:-1] != yes[:-2]) | (user[1:-1] != user[:-2]) | (user[1:-1] != user[2:])
    offset = np.searchsorted(user[keep], np.arange(users + 1))
    return Eligibility(Steps.index(t_ns[keep], offset), yes[keep])
