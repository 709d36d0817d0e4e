"""Other people's frameworks, each in an environment of its own, made from its list of requirements."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from benchmarks.suite.records import REPOSITORY

REQUIREMENTS = REPOSITORY / "benchmarks" / "peers"
MARK = ".installed"


class PeerUnavailable(Exception):
    """A framework could not be installed here; says why."""


def peer_python(name: str) -> Path:
    """The interpreter of ``.venv-peers-<name>``, made from ``requirements-<name>.txt`` if need be.

    Raises:
        PeerUnavailable: The package registry at hand does not have it, or it does not install.
    """
    environment = REPOSITORY / f".venv-peers-{name}"
    requirements = REQUIREMENTS / f"requirements-{name}.txt"
    python, mark = environment / "bin" / "python", environment / MARK
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if mark.exists() and mark.read_text().strip() == wanted:
        return python
    print(f"  installing into {environment.name} (a few minutes, once)", flush=True)
    if not python.exists():
        _run([sys.executable, "-m", "venv", str(environment)])
    _run([str(python), "-m", "pip", "install", "--quiet", "--requirement", str(requirements)])
    mark.write_text(f"{wanted}\n")
    return python


def _run(command: list[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise PeerUnavailable(said[-1] if said else f"exit code {done.returncode}")
