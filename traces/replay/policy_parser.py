"""From the text of a policy to its data and back.

::

    policy     = conjunction { "or" conjunction }
    conjunction = factor { "and" factor }
    factor     = "not" factor | "(" policy ")" | "battery" (">=" | ">" | "<=" | "<") level | word
    level      = number "%"  (0 to 100)  |  number  (0 to 1)
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from decimal import Decimal

from joulefleet.errors import ConfigError
from traces.replay.policy import COMPARISONS, WORDS, And, BatteryTerm, Not, Or, Policy, Word

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
