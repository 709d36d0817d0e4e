"""``python -m benchmarks [NAME ...]``: run the benchmarks, print one table, keep the figures.

Without names everything is run; what finished in a run that was interrupted is not run again. Speed is
compared inside one run on one machine; absolute figures from different days mean little.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.result import Figure
from benchmarks.suite.check import BAD, compare, line
from benchmarks.suite.machine import git
from benchmarks.suite.records import (
    MEASURED,
    PAGE,
    PUBLISHED,
    REPOSITORY,
    ModuleResult,
    Published,
    measured,
)
from benchmarks.suite.report import page
from benchmarks.suite.runner import names, run_in_child
from joulefleet.config import validate
from joulefleet.errors import JoulefleetError
from joulefleet.files import write_atomic
from joulefleet.records import read_json, read_record, write_record

FINISHED = ".finished"
"""In the folder of the results: every module has been run; the next run begins anew."""


def main(arguments: list[str]) -> int:
    """Run, check or publish."""
    asked = _parser().parse_args(arguments)
    try:
        if asked.check:
            return check(asked.against, asked.results)
        if asked.publish:
            return publish(asked.results)
        return run(asked.names, asked.results)
    except JoulefleetError as error:
        print(f"benchmarks: {error.message}\n  try: {error.hint}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="modules; all that are left by default")
    parser.add_argument("--check", action="store_true", help="compare ratios with the committed ones")
    parser.add_argument("--publish", action="store_true", help="write docs/benchmarks.md and its JSON")
    parser.add_argument("--against", type=Path, help="instead of the committed results")
    parser.add_argument("--results", type=Path, default=MEASURED, help="folder of this run's results")
    return parser


def run(wanted: list[str], folder: Path) -> int:
    """Run the wanted benchmarks, or all that are left; 1 if one failed."""
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        print(f"no benchmark called {', '.join(unknown)}; known: {', '.join(names())}", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    todo = wanted or _left(folder)
    for number, name in enumerate(todo, 1):
        print(f"[{number}/{len(todo)}] {name}", flush=True)
        _show(run_in_child(name, folder))
    found = [module for module in measured(folder) if not wanted or module.module in wanted]
    failed = [module.module for module in found if module.error]
    if not wanted:
        print("\nall of them")
        for module in found:
            print(module.module)
            _show(module)
        if not failed:
            (folder / FINISHED).touch()
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def _left(folder: Path) -> list[str]:
    """What has no result yet; everything if the last run was complete."""
    if (folder / FINISHED).exists():
        for path in folder.glob("*.json"):
            path.unlink()
        (folder / FINISHED).unlink()
    done = {module.module: module for module in measured(folder) if not module.error}
    for module in done.values():
        print(f"{module.module}: kept, measured {module.measured_at}, commit {module.commit}")
    return [name for name in names() if name not in done]


def check(against: Path | None, folder: Path) -> int:
    """1 if a ratio has become worse, is gone, or could not be measured."""
    now = measured(folder)
    if not now:
        print(f"nothing measured yet in {folder}: run `make bench`", file=sys.stderr)
        return 2
    then = _committed() if against is None else validate(read_json(against), Published, name=str(against))
    found = compare(then.modules, now)
    for one in sorted(found, key=lambda one: one.verdict in BAD):
        print(line(one))
    bad = [one for one in found if one.verdict in BAD]
    print(f"{len(found)} ratios, {len(bad)} of them worse, gone or failed")
    return 1 if bad else 0


def _committed() -> Published:
    """As of the last commit: `make bench` has already written over the file itself."""
    name = PUBLISHED.relative_to(REPOSITORY).as_posix()
    text = git("show", f"HEAD:{name}")
    return validate(json.loads(text) if text else read_json(PUBLISHED), Published, name=name)


def publish(folder: Path) -> int:
    """Write what was measured to the documentation; modules that were not run keep what is there."""
    found = {module.module: module for module in measured(folder)}
    kept = read_record(PUBLISHED, Published).modules if PUBLISHED.exists() else ()
    found = {module.module: module for module in kept if module.module in names()} | found
    published = Published(modules=tuple(found[name] for name in sorted(found)))
    write_record(PUBLISHED, published, replace=True)
    write_atomic(PAGE, page(published).encode(), replace=True)
    print(f"wrote {PAGE} and {PUBLISHED}")
    return 0


def _show(module: ModuleResult) -> None:
    for one in module.figures:
        show(one)
    if module.error:
        print(f"  FAILED: {module.error}", flush=True)
    print(
        f"  ({module.took_s:.0f} s, load average {module.load_before:g} before, {module.load_after:g} after)"
    )


def show(one: Figure) -> None:
    """One line of the table."""
    spread = f"{one.low:.3g} to {one.high:.3g}, n={one.repeats}"
    value = f"{one.value:>10.4g} {one.unit:<12}"
    print(f"  {one.name:<58} {value} ({spread})  {one.held_to}  {one.note}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
