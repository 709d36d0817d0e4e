"""`connected`: a Ray cluster, a given one or one of this machine's own, and what of it is in use."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from joulefleet.errors import JoulefleetError, MissingExtra
from joulefleet.install_hint import install_hint


class Cluster:
    """A Ray cluster that this process is connected to."""

    def cpus(self) -> int:
        """Processors of all nodes that are there now."""
        ray = _untyped_ray()
        return int(ray.cluster_resources().get("CPU", 0))

    def use(self) -> dict[str, int]:
        """What there is and what of it is taken, of everybody who uses the cluster."""
        ray = _untyped_ray()
        there, free = ray.cluster_resources(), ray.available_resources()
        taken = {name: int(there.get(name, 0) - free.get(name, 0)) for name in ("CPU", "object_store_memory")}
        return {
            "nodes": sum(1 for node in ray.nodes() if node["Alive"]),
            "cpus": int(there.get("CPU", 0)),
            "cpus_taken": taken["CPU"],
            "object_store_bytes": int(there.get("object_store_memory", 0)),
            "object_store_bytes_taken": taken["object_store_memory"],
        }

    def describe(self) -> str:
        """`use` for people."""
        use = self.use()
        nodes = "1 node" if use["nodes"] == 1 else f"{use['nodes']} nodes"
        return (
            f"ray: {use['cpus_taken']} of {use['cpus']} CPUs on {nodes}, "
            f"object store {use['object_store_bytes_taken'] / 1e6:.0f} of "
            f"{use['object_store_bytes'] / 1e6:.0f} MB"
        )


@contextmanager
def connected(address: str | None = None, **options: Any) -> Iterator[Cluster]:
    """Connect to a cluster, or start one on this machine and end it afterwards.

    Args:
        address: ``host:port`` of a cluster's head, ``auto`` for the one that this machine is part of; by
            default a new one on this machine.
        options: Of ``ray.init``, e.g. ``num_cpus`` of an own one.

    Raises:
        MissingExtra: ray is not installed.
        JoulefleetError: No cluster answers.
    """
    # A research tool reports to nobody: Ray's usage statistics stay off unless somebody turned them on.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtra("--engine ray needs ray", hint=install_hint("scale")) from error
    if ray.is_initialized():
        raise JoulefleetError(
            "this process is connected to a Ray cluster already", hint="call ray.shutdown() first"
        )
    own: dict[str, Any] = {}
    if address is None:
        cpus = len(os.sched_getaffinity(0))  # not those of the machine, which Ray would take
        own = {"address": "local", "include_dashboard": False, "num_cpus": cpus}
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        ray.init(**{"address": address, **own, **quiet, **options})
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise JoulefleetError(
            f"no Ray cluster at {address or 'this machine'}: {error}",
            hint="is it up (`ray status --address HOST:6379`), with the same ray, Python and token?",
        ) from error
    try:
        yield Cluster()
    finally:
        ray.shutdown()


def _untyped_ray() -> Any:
    """Ray's own annotations end where its resources begin."""
    import ray

    return ray
