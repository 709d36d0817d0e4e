"""Eligibility policies as data: when may a phone train?

A policy is a small expression over facts of a trace, e.g. ``charging and wifi and idle`` or
``battery >= 30 % or charging``. `traces.replay.policy_parser` parses the text; nothing is ever evaluated as
code.

What is unknown follows Kleene's logic: unknown ``and`` false is false, unknown ``or`` true is true, ``not``
unknown is unknown. **A phone whose answer is unknown is not eligible**: a gap in a recording never turns
into a device that trains. The one word that asks nothing, ``any``, is true even in a gap and outside the
recording; ``recorded`` is the word for "the recorder ran".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.model import NetworkKind
from traces.replay import flags as packed
from traces.replay.flags import FALSE, TRUE, UNKNOWN

Truth = NDArray[np.int8]

CELLULAR = {
    NetworkKind.CELLULAR,
    NetworkKind.CELLULAR_2G,
    NetworkKind.CELLULAR_3G,
    NetworkKind.CELLULAR_4G,
    NetworkKind.CELLULAR_5G,
}
ONLINE = CELLULAR | {NetworkKind.WIFI, NetworkKind.ETHERNET}
_MAYBE_OFFLINE = frozenset({NetworkKind.NOT_WIFI})


def _idle(flags: NDArray[np.uint16]) -> Truth:
    """The screen is off; where the screen was not observed, no app is in the foreground."""
    screen = packed.truth(flags, "screen")
    in_use = np.where(screen == UNKNOWN, packed.truth(flags, "app"), screen)
    return np.asarray(TRUE - in_use, np.int8)


WORDS: Mapping[str, tuple[Callable[[NDArray[np.uint16]], Truth], str]] = {
    "any": (lambda flags: np.full(len(flags), TRUE, np.int8), "always, even where nothing is recorded"),
    "recorded": (
        lambda flags: np.where(packed.covered(flags), np.int8(TRUE), np.int8(FALSE)),
        "the recorder ran",
    ),
    "charging": (lambda flags: packed.truth(flags, "plugged"), "a charger is connected"),
    "screen": (lambda flags: packed.truth(flags, "screen"), "the screen is on"),
    "idle": (_idle, "the screen is off (or, if that was not recorded, no app is in the foreground)"),
    "available": (lambda flags: packed.truth(flags, "available"), "the source itself says so"),
    "wifi": (lambda flags: packed.network_truth(flags, {NetworkKind.WIFI}), "on Wi-Fi"),
    "unmetered": (
        lambda flags: packed.network_truth(flags, {NetworkKind.WIFI, NetworkKind.ETHERNET}),
        "on Wi-Fi or a cable",
    ),
    "cellular": (
        lambda flags: packed.network_truth(flags, CELLULAR, _MAYBE_OFFLINE),
        "on a cellular network",
    ),
    "online": (lambda flags: packed.network_truth(flags, ONLINE, _MAYBE_OFFLINE), "on any network"),
}
"""Every word of a policy: its truth value from packed flags, and its meaning."""

COMPARISONS: Mapping[str, Callable[[NDArray[np.float64], float], NDArray[np.bool_]]] = {
    ">=": lambda level, limit: level >= limit,
    ">": lambda level, limit: level > limit,
    "<=": lambda level, limit: level <= limit,
    "<": lambda level, limit: level < limit,
}


@dataclass(frozen=True, slots=True)
class Word:
    """A fact, by its name in `WORDS`."""

    name: str


@dataclass(frozen=True, slots=True)
class BatteryTerm:
    """The battery level against a limit.

    Attributes:
        comparison: A key of `COMPARISONS`.
        level: 0 to 1.
    """

    comparison: str
    level: float

    def holds(self, level: NDArray[np.float64]) -> Truth:
        """Truth value at given levels; NaN is unknown."""
        decided = np.where(COMPARISONS[self.comparison](level, self.level), np.int8(TRUE), np.int8(FALSE))
        return np.where(np.isnan(level), np.int8(UNKNOWN), decided)


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    part: Policy


@dataclass(frozen=True, slots=True)
class And:
    """All parts."""

    parts: tuple[Policy, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one part."""

    parts: tuple[Policy, ...]


Policy = Word | BatteryTerm | Not | And | Or


def battery_terms(policy: Policy) -> tuple[BatteryTerm, ...]:
    """Every battery comparison in a policy, each once, in order of appearance."""
    match policy:
        case BatteryTerm():
            return (policy,)
        case Not(part):
            return battery_terms(part)
        case And(parts) | Or(parts):
            return tuple(dict.fromkeys(term for part in parts for term in battery_terms(part)))
    return ()


def evaluate(policy: Policy, flags: NDArray[np.uint16], battery: Mapping[BatteryTerm, Truth]) -> Truth:
    """Truth value of a policy at moments given by their packed flags and battery comparisons."""
    match policy:
        case Word(name):
            return WORDS[name][0](flags)
        case BatteryTerm():
            return battery[policy]
        case Not(part):
            return np.asarray(TRUE - evaluate(part, flags, battery), np.int8)
        case And(parts):
            return _fold(np.minimum, [evaluate(part, flags, battery) for part in parts])
        case Or(parts):
            return _fold(np.maximum, [evaluate(part, flags, battery) for part in parts])


def _fold(operation: np.ufunc, parts: list[Truth]) -> Truth:
    return np.asarray(operation.reduce(parts), np.int8)
