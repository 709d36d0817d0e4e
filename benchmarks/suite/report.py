"""``docs/benchmarks.md`` from the published results, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from benchmarks.result import RATIO, Figure
from benchmarks.suite.records import REPOSITORY, Machine, ModuleResult, Published

HEAD = """# Benchmarks

Written by `make bench` from [results/benchmarks.json](results/benchmarks.json); do not edit. Values are
medians of the repeats; the spread is from the smallest to the largest. **x** is a ratio of two things that
were measured side by side in one run: these, and only these, mean the same on another machine, and
`make bench-check` compares them with a new run. Everything else is this machine's: compare it with nothing
but its own bar.
"""

COMMANDS = """
```bash
make bench                   # everything; goes on where it was interrupted
make bench-check             # that run's ratios against the committed ones; exit code 1 if worse by over 20 %
python -m benchmarks NAME    # one module, fewer repeats; all of them with JOULEFLEET_BENCH=full
```
"""


def page(published: Published) -> str:
    """The page."""
    modules = published.modules
    missed = [one for module in modules for one in module.figures if one.verdict == "MISSED"]
    parts = [HEAD, COMMANDS, _machines(modules), _summary(missed, modules)]
    most = max((module.machine.cores for module in modules), default=0)
    parts += [_module(module, most) for module in modules]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def _machines(modules: Sequence[ModuleResult]) -> str:
    """Each machine once; environments of peers may have been made in the course of the run."""
    lines = ["## Where", ""]
    most = max((module.machine.cores for module in modules), default=0)
    plain = {"peers": {}, "cores": most}  # a module that was given fewer says so itself
    for machine in _unique([module.machine.model_copy(update=plain) for module in modules]):
        size = f"{machine.cores} cores, {machine.memory_gb:g} GB"
        lines.append(f"- {machine.cpu}, {size}, {machine.system}, Python {machine.python}")
        lines.append(f"- ours: {_versions(machine.packages)}")
    peers: dict[str, dict[str, str]] = {}
    for module in sorted(modules, key=lambda module: module.measured_at):
        peers |= module.machine.peers
    return "\n".join([*lines, *(f"- `{name}`: {_versions(found)}" for name, found in peers.items())])


def _versions(packages: dict[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in packages.items())


def _unique(machines: list[Machine]) -> list[Machine]:
    return [machine for i, machine in enumerate(machines) if machine not in machines[:i]]


def _summary(missed: list[Figure], modules: Sequence[ModuleResult]) -> str:
    bars = sum(one.bar is not None for module in modules for one in module.figures)
    failed = [module for module in modules if module.error]
    lines = ["## Bars", "", f"{bars - len(missed)} of {bars} bars are reached."]
    lines += [
        f"- **missed**: {one.benchmark}, {one.name}: {_number(one.value)} {one.unit}, {one.held_to}"
        for one in missed
    ]
    lines += [f"- **failed**: {module.module}: {module.error.splitlines()[0]}" for module in failed]
    return "\n".join(lines)


def _module(module: ModuleResult, most_cores: int) -> str:
    minutes = f"{module.took_s / 60:.1f} min" if module.took_s >= 60 else f"{module.took_s:.0f} s"
    when = f"{module.measured_at[:16].replace('T', ' ')} UTC, commit {module.commit or 'unknown'}"
    load = f"load average {module.load_before:g} before and {module.load_after:g} after"
    reduced = "" if module.full else ", reduced repeats"
    pinned = "" if module.machine.cores == most_cores else f", held to {module.machine.cores} of the cores"
    command = f"`python -m benchmarks {module.module}`: {when}, {minutes}, {load}{pinned}{reduced}."
    lines = [f"## {module.module}", "", _first_paragraph(module.module), "", command]
    if module.error:
        return "\n".join([*lines, "", f"Failed: {module.error.splitlines()[0]}"])
    lines += ["", "| what | | spread | n | bar | |", "|---|---|---|---|---|---|"]
    return "\n".join([*lines, *(_row(one) for one in module.figures)])


def _row(one: Figure) -> str:
    spread = f"{_number(one.low)} to {_number(one.high)}" if one.repeats > 1 else ""
    value = f"{_number(one.value)} {one.unit}".strip()
    strong = f"**{value}**" if one.unit == RATIO else value
    cells = (one.name, strong, spread, str(one.repeats), one.held_to, one.note)
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def _first_paragraph(name: str) -> str:
    """Of the module's own documentation, read without importing it."""
    path = REPOSITORY / "benchmarks" / f"{name}.py"
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) if path.exists() else ""
    return (text or "").split("\n\n")[0].replace("\n", " ")
