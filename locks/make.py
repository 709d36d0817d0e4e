"""Writes the locks beside this file: what pip would install, with the hash of every file it would take.

pip itself resolves, once for each Python and machine, and reports what it chose; nothing is downloaded but
metadata. It asks the package index that pip is set to, and `constraints.txt` for versions. Usage:

    python locks/make.py                          base.txt, all.txt, torch-cuda.txt
    python locks/make.py --cpu FOLDER_OR_PAGE     torch-cpu.txt, from where the CPU builds of torch lie
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
    lines = [f"# {about}", "# Made by locks/make.py; docs/install.md says how to use it."]
    for (project, version), digests in sorted(hashes.items()):
        lines.append(" \\\n    ".join([f"{project}=={version}", *(f"--hash=sha256:{d}" for d in sorted(digests))]))
    (HERE / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Make them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cpu", metavar="FOLDER_OR_PAGE", help="where the CPU builds of torch lie")
    arguments = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    rest = [
        one for name, needs in extras.items() if name not in ("all", "flower") for one in needs
        if not one.startswith(TORCH)
    ]  # fmt: skip
    if arguments.cpu:
        from_there = ("--no-deps", "--find-links", arguments.cpu)
        cpu = chosen(["torch==2.13.0+cpu", "torchvision"], "3.11", "x86_64", *from_there)
        write("torch-cpu.txt", "torch without CUDA, after all.txt.", {pin: {one} for pin, one in cpu.items()})
        return
    base = everywhere(project["dependencies"])
    whole = everywhere([*project["dependencies"], *rest, "networkx", "sympy", "fsspec", "setuptools"])
    torch = everywhere([*project["dependencies"], *rest, *TORCH])
    write("base.txt", "The base install.", base)
    write("all.txt", "All extras but torch, torchvision and Flower.", whole)
    write("torch-cuda.txt", "torch with CUDA, after all.txt.", {p: h for p, h in torch.items() if p not in whole})


if __name__ == "__main__":
    main()
