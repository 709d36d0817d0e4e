"""Writes the locks beside this file: what pip would install, with the hash of every file it would take.

pip itself resolves, once for each Python and machine, and reports what it chose; nothing but metadata is
downloaded. It asks the package index that it is set to, and `constraints.txt` for versions. Usage:

    python locks/make.py [--cpu FOLDER_OR_PAGE]

With --cpu, builds of torch without CUDA that lie there are allowed too.
"""

import argparse
import json
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
GLIBCS = (34, 31, 28, 27, 24, 17)
"""Debian 12 and later, Ubuntu 22.04 and later have these and newer ones."""
TORCH = ("torch", "torchvision")
BESIDE_TORCH = ("filelock", "fsspec", "networkx", "setuptools", "sympy", "typing_extensions")
"""What torch needs beside CUDA."""
PINS = tuple[str, str]


def chosen(wanted: Iterable[str], python: str, machine: str, *options: str) -> dict[PINS, str]:
    """What pip would install there: SHA-256 by name and version."""
    platforms = [f"manylinux_2_{glibc}_{machine}" for glibc in GLIBCS]
    platforms += [f"manylinux2014_{machine}", f"linux_{machine}"]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    command += ["--report", "-", "--target", "unused", "--only-binary", ":all:", "--python-version", python]
    command += [word for platform in platforms for word in ("--platform", platform)]
    command += ["-c", str(ROOT / "constraints.txt"), *options, *wanted]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    found = {}
    for one in json.loads(done.stdout)["install"]:
        pin = (one["metadata"]["name"].lower().replace("_", "-"), one["metadata"]["version"])
        found[pin] = one["download_info"]["archive_info"]["hashes"]["sha256"]
    return found


def everywhere(wanted: Iterable[str], *options: str) -> dict[PINS, set[str]]:
    """The same for every Python and machine."""
    hashes: dict[PINS, set[str]] = defaultdict(set)
    for python in PYTHONS:
        for machine in MACHINES:
            for pin, digest in chosen(list(wanted), python, machine, *options).items():
                hashes[pin].add(digest)
    return hashes


def write(name: str, about: str, hashes: dict[PINS, set[str]]) -> None:
    """One file that `pip install --require-hashes -r` takes."""
    lines = [f"# {about}", "# Made by locks/make.py; docs/install.md says how it is used."]
    for (project, version), digests in sorted(hashes.items()):
        lines.append(
            " \\\n    ".join([f"{project}=={version}", *(f"--hash=sha256:{d}" for d in sorted(digests))])
        )
    (HERE / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Make them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cpu", metavar="FOLDER_OR_PAGE", help="where builds of torch without CUDA lie")
    cpu = parser.parse_args().cpu
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    rest = [
        need for name in extras if name not in ("all", "flower") for need in extras[name]
        if not need.startswith(TORCH)
    ]  # fmt: skip
    write("base.txt", "The base install.", everywhere(project["dependencies"]))
    torch = everywhere(TORCH, "--no-deps")
    if cpu is not None:
        for pin, digest in chosen(
            ["torch"], PYTHONS[0], MACHINES[0], "--no-deps", "--find-links", cpu
        ).items():
            torch[pin[0], pin[1].partition("+")[0]].add(digest)
    write("torch.txt", "torch, with --no-deps, after all.txt: its builds with CUDA and without.", torch)
    whole = everywhere([*project["dependencies"], *rest, *BESIDE_TORCH])
    write("all.txt", "All extras but torch, torchvision and Flower.", whole)


if __name__ == "__main__":
    main()
