"""`connected`: a Ray cluster, a given one or one of this machine's own, and what of it is in use."""

from __future__ import annotations

import logging
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from joulefleet.errors import JoulefleetError, MissingExtra
from joulefleet.install_hint import install_hint

OLDEST = (2, 52)
"""The first Ray with token authentication (docs.ray.io: Ray token authentication)."""

_TOKEN = secrets.token_hex(32)
"""Of clusters of our own: Ray reads it once in the life of a process."""

_log = logging.getLogger(__name__)


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
    if tuple(map(int, ray.__version__.split(".")[:2])) < OLDEST:
        raise MissingExtra(
            f"ray {ray.__version__} has no authentication: whoever reaches it can run code",
            hint=f"{install_hint('scale')}, at least ray {'.'.join(map(str, OLDEST))}",
        )
    if ray.is_initialized():
        raise JoulefleetError(
            "this process is connected to a Ray cluster already", hint="call ray.shutdown() first"
        )
    own: dict[str, Any] = {}
    if address is None:
        cpus = len(os.sched_getaffinity(0))  # not those of the machine, which Ray would take
        own = {"address": "local", "include_dashboard": False, "num_cpus": cpus}
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    _ask_for_token(own=address is None)
    _untyped_ray()._raylet.Config.initialize("")  # it read the environment when it was imported
    with _on_loopback() if address is None else nullcontext():
        yield from _connected(ray, address, {"address": address, **own, **quiet, **options})


def _connected(ray: Any, address: str | None, options: dict[str, Any]) -> Iterator[Cluster]:
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise JoulefleetError(
            f"no Ray cluster at {address or 'this machine'}: {error}",
            hint="is it up (`ray status --address HOST:6379`), with the same ray, Python and token?",
        ) from error
    try:
        yield Cluster()
    finally:
        ray.shutdown()


def _ask_for_token(*, own: bool) -> None:
    """Have Ray ask everybody for the token, and refuse to use one that others can read.

    Raises:
        JoulefleetError: The token's file is open to others of this machine, or what is there is no token.
    """
    if os.environ.setdefault("RAY_AUTH_MODE", "token") != "token":
        _log.warning(
            "RAY_AUTH_MODE is %s: whoever reaches the cluster can run code", os.environ["RAY_AUTH_MODE"]
        )
        return
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        _require_token(token, "RAY_AUTH_TOKEN")
        return
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if own and not named:
        os.environ["RAY_AUTH_TOKEN"] = (
            _TOKEN  # in the environment: Ray's own file in the home is open to others
        )
        return
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    if not path.exists():
        return  # Ray says what to do
    if not path.is_file():
        raise JoulefleetError(f"{path}: is no plain file, and so no token")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise JoulefleetError(f"{path}: others can read the token of the cluster", hint=f"chmod 600 {path}")
    _require_unshared(path)
    with path.open("rb") as file:
        _require_token(file.read(4096).decode(errors="replace"), str(path))


def _require_unshared(path: Path) -> None:
    """Refuse a file in whose place others can put another, by the folders and links on the way to it."""
    for place in {one for start in (path.absolute(), path.resolve()) for one in (start, *start.parents)}:
        facts = place.lstat()
        # In a folder like /tmp, nobody takes away what is of somebody else.
        shared = facts.st_mode & 0o022 and not (stat.S_ISLNK(facts.st_mode) or facts.st_mode & stat.S_ISVTX)
        if shared or facts.st_uid not in (0, os.geteuid()):
            raise JoulefleetError(
                f"{path}: others can replace the token of the cluster: they may change {place}",
                hint=f"`chmod go-w {place}` if it is yours; or another folder, or RAY_AUTH_TOKEN",
            )


def _require_token(token: str, place: str) -> None:
    """Refuse what anybody would guess, or a header cannot hold."""
    if not (token.strip() and token.strip().isascii() and token.strip().isprintable()):
        raise JoulefleetError(f"{place}: holds no token", hint="`ray get-auth-token --generate` makes one")


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Ray's processes listen on 127.0.0.1 only.

    Ray takes a loopback address for a mistake and replaces it, except where it does not make clusters of
    several machines: this is the switch for that (ray._private.services.get_node_ip_address).
    """
    from ray._private import ray_constants

    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    before, known = ray_constants.ENABLE_RAY_CLUSTER, os.environ.get(name)
    ray_constants.ENABLE_RAY_CLUSTER, os.environ[name] = False, "0"
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        if known is None:
            del os.environ[name]
        else:
            os.environ[name] = known


def _untyped_ray() -> Any:
    """Ray's own annotations end where its resources begin."""
    import ray

    return ray
