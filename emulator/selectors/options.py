"""Checks of the options a scenario file gives to a selector."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fedjoule.errors import ConfigError


def within(selector: str, option: str, value: Any, low: float, high: float) -> None:
    """The number lies between both bounds, inclusive.

    Raises:
        ConfigError: It does not, or is not a number.
    """
    if not isinstance(value, int | float) or not low <= value <= high:
        raise ConfigError(
            f"selector {selector!r}: {option} is {value!r}", hint=f"give a number from {low:g} to {high:g}"
        )


def one_of(selector: str, option: str, value: str, known: Collection[str]) -> None:
    """The word is one of the known ones.

    Raises:
        ConfigError: It is not.
    """
    if value not in known:
        raise ConfigError(f"selector {selector!r}: {option} is {value!r}", hint=f"known: {', '.join(known)}")
