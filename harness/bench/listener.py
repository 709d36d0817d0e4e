"""Who is told how a run goes on: they may look away, and must not end it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import ParamSpec

Listener = Callable[[str, str, dict[str, object]], None]
"""Told an event, the job or round that it is about, and further facts."""

P = ParamSpec("P")


def tell(listener: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Tell a listener something, if it can still hear.

    What it prints may have nowhere to go: a terminal that was closed, a pipe whose reader has gone, a full
    disk under a log. That is no reason to end a campaign that nobody watches; the journal has it all.
    """
    with contextlib.suppress(OSError):
        listener(*args, **kwargs)
