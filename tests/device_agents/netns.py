"""A device in a network namespace of its own, over a veth pair that can be cut like a cable."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from tests.conftest import missing

_numbers = itertools.count(os.getpid())


@dataclass(frozen=True)
class Host:
    """One namespace and our end of its cable."""

    name: str
    link: str
    address: str

    def command(self, *argv: str) -> list[str]:
        """A command as it would run on that host."""
        return ["ip", "netns", "exec", self.name, *argv]

    def cut(self) -> None:
        """Pull the cable."""
        _ip("link", "set", self.link, "down")

    def mend(self) -> None:
        """Plug it in again."""
        _ip("link", "set", self.link, "up")


@contextlib.contextmanager
def host() -> Iterator[Host]:
    """A new namespace with one veth link to this machine; removed at the end."""
    number = 2 * (next(_numbers) % 120) + 2  # each host takes two addresses
    name, ours, theirs = f"fj{os.getpid()}n{number}", f"fj{number}a", f"fj{number}b"
    # 192.0.2.0/24 is reserved for documentation (RFC 5737): it can never be somebody's network.
    near, far = f"192.0.2.{number}", f"192.0.2.{number + 1}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        missing("network namespaces cannot be made here (needs root and iproute2)")
    try:
        _ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
        _ip("addr", "add", near, "peer", far, "dev", ours)
        _ip("link", "set", ours, "up")
        for argv in (
            ("addr", "add", far, "peer", near, "dev", theirs),
            ("link", "set", theirs, "up"),
            ("link", "set", "lo", "up"),
        ):
            _ip("-n", name, *argv)
        yield Host(name, ours, far)
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
        subprocess.run(["ip", "link", "del", ours], capture_output=True)


def _ip(*argv: str) -> None:
    subprocess.run(["ip", *argv], check=True, capture_output=True)
