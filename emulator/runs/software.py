"""Which software results come from. Those of one table come from the same, or somebody has accepted it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from joulefleet.errors import ConfigError
from joulefleet.runstore import Run
from joulefleet.runstore.run import host_facts, read_run

VERSIONS = ("version", "torch", "numpy")
"""Host facts, this program's own version first: another one may give other numbers."""
SOURCES = "sources"
"""Host fact: hash of the code, since its version stays the same between two releases."""
OTHER_SOFTWARE = "other_software"
"""Host fact of a run that holds results of other software, accepted by who ran it: what differed."""

_DECIDING = ("emulator", "traces", "power", "device_agents/workloads", "joulefleet/seeds.py")
# They plan runs and read them back: another plan is another fingerprint, and tables are made anew each time.
_NOT_DECIDING = ("emulator/compare", "emulator/experiments")


@cache
def sources_sha256() -> str:
    """Hash of all code that decides a result; milliseconds, once per process."""
    return hash_of(deciding_files())


def deciding_files() -> dict[str, Path]:
    """Name to place of every module whose change may change a number."""
    found: dict[str, Path] = {}
    for part in _DECIDING:
        package, _, inside = part.partition("/")
        folder = _folder(package)
        place = folder / inside
        files: Iterable[Path] = [place] if place.suffix == ".py" else place.rglob("*.py")
        found.update({f"{package}/{file.relative_to(folder).as_posix()}": file for file in files})
    kept = (name for name in found if not name.startswith(tuple(f"{part}/" for part in _NOT_DECIDING)))
    return {name: found[name] for name in sorted(kept)}


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ConfigError(f"{package}: its sources are not there", hint="install joulefleet again")
    return Path(spec.origin).parent


def hash_of(files: dict[str, Path]) -> str:
    """Hash of names and contents."""
    digest = hashlib.sha256()
    for name, file in files.items():
        digest.update(f"{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def changes_since(path: Path) -> list[str]:
    """How the software of a run folder differs from what runs now."""
    theirs, ours = read_run(path).host, host_facts() | {SOURCES: sources_sha256()}
    changed = [
        f"{name} {theirs.get(name, 'unknown'):.12}, now {ours.get(name, 'none'):.12}"
        for name in (*VERSIONS, SOURCES)
        if theirs.get(name) != ours.get(name)
    ]
    return [*changed, *([theirs[OTHER_SOFTWARE]] if OTHER_SOFTWARE in theirs else [])]


def check_software(path: Path, hint: str, *, accept: bool = False) -> None:
    """Refuse a run folder of other software, unless that is accepted.

    Raises:
        ConfigError: It was made by other software, whose numbers may differ.
    """
    changed = changes_since(path)
    if changed and not accept:
        raise ConfigError(
            f"{path}: was made by other software, whose numbers may differ: {'; '.join(changed)}",
            hint=f"{hint}; `--accept-other-software` goes on, for changes that you know to decide no number",
        )


def note_accepted(run: Run, sources: Sequence[Path]) -> None:
    """Let a run say that it goes on with, or takes over, results of other software."""
    told = [f"{path.name}: {'; '.join(changed)}" for path in sources if (changed := changes_since(path))]
    if told:
        run.note(**{OTHER_SOFTWARE: "; ".join(told)})
