"""Options of a selector: checked before anything is trained for it, and listed with their defaults."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import json
from collections.abc import Collection, Mapping
from numbers import Integral
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from emulator.round.selector import Selector
from joulefleet.config import sentence
from joulefleet.errors import ConfigError

STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True)
"""A text is no number: TOML says which of them a value is."""


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


def made_with(name: str, kind: type[Selector], options: Mapping[str, Any]) -> Selector:
    """A selector with the options of a scenario.

    Raises:
        ConfigError: It has no such option, or a value does not fit.
    """
    known = options_of(kind)
    unknown = sorted(set(options) - set(known))
    near = difflib.get_close_matches(unknown[0], known, n=1) if unknown else []
    hint = (f"did you mean {near[0]!r}? " if near else "") + f"known: {', '.join(known) or 'none'}"
    # One that passes further options on refuses unknown ones itself.
    if unknown and all(option.kind is not option.VAR_KEYWORD for option in _parameters(kind).values()):
        raise ConfigError(f"selector {name!r} has no option {unknown[0]!r}", hint=hint)
    _check_types(name, kind, options)
    try:
        return kind(**options)
    except ConfigError as error:
        raise ConfigError(error.message, hint=hint if unknown and near else error.hint) from error
    except (TypeError, ValueError) as error:
        given = ", ".join(f"{option} = {value!r:.40}" for option, value in options.items()) or "no options"
        raise ConfigError(
            f"selector {name!r} does not take {given}: {error}", hint=hint if unknown else ""
        ) from error


def named_options(kind: type[Selector], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options, with the defaults of those that the constructor names."""
    empty = inspect.Parameter.empty
    shown = {name: one.default for name, one in _parameters(kind).items() if one.default is not empty}
    return {**shown, **options}


def _parameters(kind: type[Selector]) -> Mapping[str, inspect.Parameter]:
    # `object` takes no options, whatever its own signature says.
    return {} if kind.__init__ is object.__init__ else inspect.signature(kind).parameters


def _check_types(name: str, kind: type[Selector], options: Mapping[str, Any]) -> None:
    """Refuse values of another type than the constructor is annotated with."""
    try:
        hints = get_type_hints(kind.__init__)
    except (NameError, TypeError):  # other people's annotations that cannot be looked up
        return
    for option in sorted(set(options) & set(hints)):
        try:
            # As JSON: there a list may become a tuple, as it does in a file.
            TypeAdapter(hints[option], config=STRICT).validate_json(json.dumps(options[option]))
        except (PydanticUserError, TypeError):  # a type of the method's own, or no plain value
            continue
        except ValidationError as error:
            with contextlib.suppress(TypeError, ValueError):
                kind(**options)  # its own check says better what is wanted
            raise ConfigError(
                f"selector {name!r}: {option} is {options[option]!r:.60}", hint=sentence(error.errors()[0])
            ) from None
