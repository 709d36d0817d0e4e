"""Which software results come from. Those of one table come from the same, or somebody has accepted it."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping, Sequence
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

_DECIDING = (
    "emulator/data", "emulator/fleet", "emulator/own_code", "emulator/round", "emulator/runs/assembly.py",
    "emulator/runs/checkpoint.py", "emulator/runs/emulation.py", "emulator/runs/fleet_inputs.py",
    "emulator/runs/learners.py", "emulator/runs/tables.py", "emulator/scenario", "emulator/selectors",
    "emulator/training", "device_agents/workloads", "joulefleet/seeds.py", "power/profile",
    "power/reference", "traces/data/app_intensity.toml", "traces/intervals.py", "traces/merge.py",
    "traces/model.py", "traces/replay", "traces/storage/tables.py",
    "traces/storage/trace_set.py", "traces/synth/draw", "traces/synth/model.py", "traces/synth/write.py",
)  # fmt: skip
"""What an emulation computes with.

Profiles, policies, usage models and scenarios are facts of the run itself. Plans, comparisons, instruments,
readers and pages decide no number of it. Where training happens (`emulator.scale`) changes no bit.
"""


@cache
def sources_sha256() -> str:
    """Hash of all code that decides a result; a quarter of a second, once per process."""
    return hash_of(deciding_files())


def deciding_files() -> dict[str, Path]:
    """Name to place of every file whose change may change a number."""
    found: dict[str, Path] = {}
    for part in _DECIDING:
        package, _, inside = part.partition("/")
        folder = _folder(package)
        place = folder / inside
        files: Iterable[Path] = [place] if place.suffix else place.rglob("*.py")
        found.update({f"{package}/{file.relative_to(folder).as_posix()}": file for file in files})
    return {name: found[name] for name in sorted(found)}


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ConfigError(f"{package}: its sources are not there", hint="install joulefleet again")
    return Path(spec.origin).parent


def hash_of(files: Mapping[str, Path]) -> str:
    """Hash of names and of what the files compute: a comment, a docstring or white space changes nothing."""
    digest = hashlib.sha256()
    for name, file in files.items():
        text = file.read_text(encoding="utf-8")
        if _is_front_door(name, text):
            continue
        content = "".join(_structure(ast.parse(text), [])) if file.suffix == ".py" else text
        digest.update(f"{name}\0{hashlib.sha256(content.encode()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _is_front_door(name: str, text: str) -> bool:
    """A list of public names, which computes nothing."""
    return name.endswith("__init__.py") and ("lazy_names(" in text or "lazy_names(" in text)


def _structure(node: object, parts: list[str]) -> list[str]:
    """A syntax tree as text, without what stands in it for readers.

    Not `ast.dump`, which prints the same code differently in different versions of Python. The parts go to
    one list: generators inside generators would hand each part up through the whole depth of the tree.
    """
    if isinstance(node, ast.AST):
        parts.append(type(node).__name__ + "(")
        for name, value in ast.iter_fields(node):
            if value is not None and value != []:  # later versions have more fields, empty ones in old code
                parts.append(name + "=")
                _structure(value, parts)
        parts.append(")")
    elif isinstance(node, list):
        parts.append("[")
        for item in node:
            if not _is_prose(item):
                _structure(item, parts)
        parts.append("]")
    else:
        parts.append(repr(node) + ",")
    return parts


def _is_prose(statement: object) -> bool:
    """A docstring, of whatever it is about."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def changes_since(path: Path) -> list[str]:
    """How the software of a run folder differs from what runs now."""
    theirs, ours = read_run(path).host, host_facts() | {SOURCES: sources_sha256()}
    changed = [
        f"{name} {theirs.get(name, 'unknown'):.12}, now {ours.get(name, 'none'):.12}"
        for name in (*VERSIONS, SOURCES)
        if theirs.get(name) != ours.get(name)
    ]
    return [*changed, *([theirs[OTHER_SOFTWARE]] if OTHER_SOFTWARE in theirs else [])]


def mixed_software(runs: Iterable[Path]) -> list[str]:
    """How the software of several run folders differs among them; nothing if they are all of the same."""
    hosts = {path: read_run(path).host for path in runs}
    found = []
    for name in (*VERSIONS, SOURCES):
        firsts: dict[str, Path] = {}
        for path, host in hosts.items():
            firsts.setdefault(f"{host.get(name, 'unknown'):.12}", path)
        if len(firsts) > 1:
            found.append(f"{name} " + ", ".join(f"{value} ({path.name})" for value, path in firsts.items()))
    return found


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


def source_facts() -> dict[str, str]:
    """For a new run to say which code it comes from."""
    return {SOURCES: sources_sha256()}


def note_accepted(run: Run, sources: Sequence[Path]) -> None:
    """Let a run say that it goes on with, or takes over, results of other software."""
    notes = [f"{path.name}: {'; '.join(changed)}" for path in sources if (changed := changes_since(path))]
    if notes:
        run.note(**{OTHER_SOFTWARE: "; ".join(notes)})
