"""One BLAS thread for small networks.

Their products are too small to share out, and the threads spin while they wait for each other: beside other
work on the same cores, learning from one round took ten times as long with two threads as with one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
R = TypeVar("R")


@cache
def _controller() -> Any:
    # Looking for the loaded libraries takes a millisecond; numpy's is there by now.
    return ThreadpoolController()


def one_blas_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: numpy's products run on one thread inside this function."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        with _controller().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return limited
