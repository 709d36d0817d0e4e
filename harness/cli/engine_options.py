"""``--engine`` and ``--ray-address``: on this machine, or on a Ray cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from emulator.scale import Cluster

F = TypeVar("F", bound=Callable[..., Any])


def engine_options(command: F) -> F:
    """Give a command both options, as ``engine`` and ``ray_address``."""
    address = click.option(
        "--ray-address",
        metavar="HOST:PORT",
        help="Address of a running Ray cluster; without it, one is started on this machine.",
    )
    engine = click.option(
        "--engine",
        type=click.Choice(["local", "ray"]),
        default="local",
        show_default=True,
        help="On this machine's cores, or on a Ray cluster; the results are the same.",
    )
    return engine(address(command))


def check_engine(engine: str, ray_address: str | None) -> None:
    """An address without the engine it belongs to is a mistake."""
    if ray_address is not None and engine != "ray":
        raise click.UsageError("--ray-address goes with `--engine ray`.")


@contextmanager
def ray_cluster(engine: str, ray_address: str | None) -> Iterator[Cluster | None]:
    """The Ray cluster to run on, if any."""
    if engine == "local":
        yield None
        return
    from emulator.scale import connected

    # Ray prints what its nodes have to say to standard output, which is for results.
    with redirect_stdout(sys.stderr), connected(ray_address) as cluster:
        yield cluster
