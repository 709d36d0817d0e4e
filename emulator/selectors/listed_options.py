"""Options of a selector and their defaults, as listings show them: also those its constructor passes on."""

from __future__ import annotations

import inspect
from typing import Any

from emulator.selectors.base import Selector


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
