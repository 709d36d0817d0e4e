"""Facts about this machine that a figure cannot be read without."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

from benchmarks.suite.records import REPOSITORY, Machine

PACKAGES = ("numpy", "torch", "onnxruntime", "ray", "pyarrow", "pandas", "scipy", "pydantic", "paramiko")
PEERS = {
    ".venv-peers": ("Monsoon", "numpy"),
    ".venv-peers-fl": ("flwr", "pfl", "ray", "torch", "numpy"),
    ".venv-peers-fedjax": ("fedjax", "jax", "jaxlib", "dm-haiku", "numpy"),
    ".venv-peers-flgo": ("flgo", "torch", "numpy"),
}


def this_machine() -> Machine:
    """The one that this runs on."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    kernel = ".".join(platform.release().split(".")[:2])
    return Machine(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(memory_bytes / 1e9, 1),
        system=f"{platform.system()} {kernel} {platform.machine()}",
        python=platform.python_version(),
        packages=_versions(PACKAGES),
        peers={
            name: _versions(packages, REPOSITORY / name)
            for name, packages in PEERS.items()
            if (REPOSITORY / name).is_dir()
        },
    )


def commit() -> str:
    """The commit of the code, with a ``+`` if files were changed; empty outside a repository."""
    found = git("rev-parse", "--short=12", "HEAD")
    return found + ("+" if found and git("status", "--porcelain", "--untracked-files=no") else "")


def git(*arguments: str) -> str:
    """What git prints; nothing if it refuses, or is not there."""
    try:
        command = ["git", "-C", str(REPOSITORY), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (FileNotFoundError, subprocess.CalledProcessError):
        return ""


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _versions(packages: tuple[str, ...], environment: Path | None = None) -> dict[str, str]:
    """Of the packages that are installed, here or in another environment."""
    path = (
        sys.path if environment is None else [str(p) for p in environment.glob("lib/python3*/site-packages")]
    )
    found = {name: next(iter(distributions(name=name, path=path)), None) for name in packages}
    return {name: package.version for name, package in found.items() if package is not None}
