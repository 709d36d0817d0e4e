"""Eligibility policies as data: when may a phone train?

A policy is a small expression over facts of a trace, e.g. ``charging and wifi and idle`` or
``battery >= 30 % or charging``. Nothing is ever evaluated as code; the grammar is

::

    policy     = conjunction { "or" conjunction }
    conjunction = factor { "and" factor }
    factor     = "not" factor | "(" policy ")" | "battery" (">=" | ">" | "<=" | "<") level | word
    level      = number "%"  (0 to 100)  |  number  (0 to 1)

What is unknown follows Kleene's logic: unknown ``and`` false is false, unknown ``or`` true is true, ``not``
unknown is unknown. **A phone whose answer is unknown is not eligible**: a gap in a recording never turns
into a device that trains. The one word that asks nothing, ``any``, is true even in a gap and outside the
recording; ``recorded`` is the word for "the recorder ran".
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from joulefleet.errors import ConfigError
from traces.model import NetworkKind
from traces.replay import flags as packed
from traces.replay.flags import FALSE, TRUE, UNKNOWN

Truth = NDArray[np.int8]

CELLULAR = {kind for kind in NetworkKind if kind.name.startswith("CELLULAR")}
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


MAX_LENGTH = 1_000
MAX_DEPTH = 50
_TOKEN = re.compile(r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<word>[A-Za-z_]+)|(?P<sign>>=|<=|[<>()%]))")


def parse_policy(text: str) -> Policy:
    """Read a policy such as ``charging and wifi and idle``; case does not matter.

    Raises:
        ConfigError: It is not a policy; says where and what would be.
    """
    if len(text) > MAX_LENGTH:
        raise ConfigError(f"the policy has {len(text)} characters, at most {MAX_LENGTH} are read")
    parser = _Parser(text)
    policy = parser.either(depth=0)
    if parser.piece is not None:
        raise parser.error(f"{parser.piece!r} is one word too many")
    return policy


def policy_text(policy: Policy) -> str:
    """A policy as text that parses to the same policy."""
    match policy:
        case Word(name):
            return name
        case BatteryTerm(comparison, level):
            return f"battery {comparison} {Decimal(repr(level)):f}"  # no exponent: the grammar has none
        case Not(part):
            return f"not {_grouped(part)}"
        case And(parts):
            return " and ".join(_grouped(part) for part in parts)
        case Or(parts):
            return " or ".join(_grouped(part) for part in parts)


def _grouped(policy: Policy) -> str:
    text = policy_text(policy)
    return f"({text})" if isinstance(policy, And | Or) else text


class _Parser:
    """Recursive descent with one word of look-ahead."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.end = 0
        self.piece: str | None = None
        self._advance()

    def either(self, depth: int) -> Policy:
        parts = self._parts("or", self._both, depth)
        return parts[0] if len(parts) == 1 else Or(parts)

    def _both(self, depth: int) -> Policy:
        parts = self._parts("and", self._factor, depth)
        return parts[0] if len(parts) == 1 else And(parts)

    def _parts(self, joint: str, part: Callable[[int], Policy], depth: int) -> tuple[Policy, ...]:
        found = [part(depth)]
        while self.piece == joint:
            self._advance()
            found.append(part(depth))
        return tuple(found)

    def _factor(self, depth: int) -> Policy:
        if depth > MAX_DEPTH:
            raise self.error(f"nested more than {MAX_DEPTH} deep")
        piece = self._take("a word, 'not', 'battery' or '('")
        if piece == "not":
            return Not(self._factor(depth + 1))
        if piece == "(":
            inner = self.either(depth + 1)
            self._expect(")")
            return inner
        if piece == "battery":
            return self._battery()
        if piece not in WORDS:
            raise self._unknown(piece)
        return Word(piece)

    def _battery(self) -> BatteryTerm:
        comparison = self._take("a comparison after 'battery'")
        if comparison not in COMPARISONS:
            raise self.error(f"'battery' is followed by {comparison!r}, not by >=, >, <= or <")
        number = self._take("a level")
        if not number[0].isdigit():
            raise self.error(f"{number!r} is not a battery level")
        level = float(number)
        if self.piece == "%":
            self._advance()
            level /= 100.0
        if level > 1.0:
            raise self.error(f"battery level {number} is above full", "write it as `30 %` or as `0.3`")
        return BatteryTerm(comparison, level)

    def _take(self, wanted: str) -> str:
        piece = self.piece
        if piece is None:
            raise self.error(f"ends where {wanted} should stand")
        self._advance()
        return piece

    def _expect(self, sign: str) -> None:
        if self._take(repr(sign)) != sign:
            raise self.error(f"{sign!r} is missing")

    def _advance(self) -> None:
        rest = self.text[self.end :]
        found = _TOKEN.match(rest)
        if found is None:
            if rest.strip():
                raise self.error(f"{rest.strip()[0]!r} has no meaning in a policy")
            self.piece = None
            return
        self.end += found.end()
        self.piece = found.group().strip().lower()

    def _unknown(self, piece: str) -> ConfigError:
        known = [*WORDS, "battery"]
        near = difflib.get_close_matches(piece, known, n=1)
        hint = (f"did you mean {near[0]!r}? " if near else "") + f"known words: {', '.join(known)}"
        return self.error(f"{piece!r} is no word of a policy", hint)

    def error(self, problem: str, hint: str = "") -> ConfigError:
        example = "e.g. `charging and wifi and idle`, `battery >= 30 %`, `any`"
        return ConfigError(f"policy {self.text.strip()!r}: {problem}", hint=hint or example)
