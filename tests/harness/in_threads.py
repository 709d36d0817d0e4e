"""Calls that wait for each other, made at the same time."""

import threading
from collections.abc import Callable
from typing import Any


def in_threads(calls: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """What each call returns or raises."""
    found: dict[str, Any] = {}

    def call(name: str, function: Callable[[], Any]) -> None:
        try:
            found[name] = function()
        except Exception as error:
            found[name] = error

    threads = [threading.Thread(target=call, args=item) for item in calls.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found
