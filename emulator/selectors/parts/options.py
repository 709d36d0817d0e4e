"""Options of a selector: checked before anything is trained for it, and listed with their defaults."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from numbers import Integral
from typing import Any

from emulator.round.selector import Selector
from joulefleet.errors import ConfigError


def within(selector: str, option: str, value: Any, low: float, high: float) -> None:
    """The number lies between both bounds, inclusive.

    Raises:
        ConfigError: It does not, or is not a number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise _refused(selector, option, value, f"give a number from {low:g} to {high:g}")


def whole(selector: str, option: str, value: Any, low: int, high: float) -> None:
    """The number lies between both bounds, inclusive, and is a whole one: 16, not 16.0.

    Raises:
        ConfigError: It does not, or is not.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or not low <= int(value) <= high:
        raise _refused(selector, option, value, f"give a whole number from {low:g} to {high:g}")


def several(selector: str, option: str, values: Any, count: int) -> None:
    """So many values; what each of them is, is for another check.

    Raises:
        ConfigError: There are more or fewer, or it is no list.
    """
    if not isinstance(values, list | tuple) or len(values) != count:
        raise _refused(selector, option, values, f"give a list of {count}")


def yes_or_no(selector: str, option: str, value: Any) -> None:
    """Nothing that only counts as true, such as the word "no".

    Raises:
        ConfigError: It is neither true nor false.
    """
    if not isinstance(value, bool):
        raise _refused(selector, option, value, "give true or false")


def text(selector: str, option: str, value: Any) -> None:
    """A name or a file.

    Raises:
        ConfigError: It is no text.
    """
    if not isinstance(value, str):
        raise _refused(selector, option, value, "give a text")


def one_of(selector: str, option: str, value: Any, known: Collection[str]) -> None:
    """The word is one of the known ones.

    Raises:
        ConfigError: It is not.
    """
    if not isinstance(value, str) or value not in known:
        raise _refused(selector, option, value, f"known: {', '.join(known)}")


def _refused(selector: str, option: str, value: Any, hint: str) -> ConfigError:
    return ConfigError(f"selector {selector!r}: {option} is {value!r}", hint=hint)


def options_of(selector: type[Selector]) -> dict[str, Any]:
    """Every option that a scenario may give, and what it is otherwise.

    A constructor that takes further options hands them to its parent's: these are followed.
    """
    found: dict[str, Any] = {}
    for kind in selector.__mro__:
        constructor = vars(kind).get("__init__")
        parameters = inspect.signature(constructor).parameters.values() if constructor else ()
        named = {p.name: p.default for p in parameters if p.default is not p.empty}
        for name, default in (named | dict(vars(kind).get("option_defaults", {}))).items():
            found.setdefault(name, default)  # a class's own word counts, not its parents'
        if parameters and all(p.kind is not p.VAR_KEYWORD for p in parameters):
            break
    return found
