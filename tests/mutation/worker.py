"""The loop over a sample of mutants, inside the scratch copy. What is known is not tried again."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.mutation import trial
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.targets import MODULES, TESTS

FOLDER = Path(os.environ.get("JOULEFLEET_MUTATION", "/var/tmp/joulefleet-mutation"))
"""Outside the tree: the scratch copy, and what is known."""

RESULTS = FOLDER / "results.jsonl"
REACH = FOLDER / "reach.json"


def sampled(seed: int, count: int, only: str | None = None) -> list[Mutant]:
    """By a hash of seed and mutant: a change of one module does not draw the others anew."""
    found = [mutant for module in MODULES for mutant in mutants_of(Path.cwd(), module)]
    found.sort(key=lambda mutant: hashlib.sha256(f"{seed} {mutant.key}".encode()).digest())
    return [mutant for mutant in found[:count] if not only or mutant.module.startswith(only)]


def digest(paths: Iterable[Path]) -> str:
    """Of files together."""
    whole = hashlib.sha256()
    for path in sorted(paths):
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]


def test_files() -> list[str]:
    """All that are asked."""
    found = [
        path
        for name in TESTS
        for path in ([Path(name)] if name.endswith(".py") else Path(name).glob("test_*.py"))
    ]
    return sorted(str(path) for path in found if path.exists())


def known_results(*, retry: bool = False) -> dict[str, dict[str, Any]]:
    """The last of each mutant, where its module is the same.

    With ``retry`` without those that survived tests which have changed since.
    """
    tests, modules = digest(map(Path, test_files())), {module: digest([Path(module)]) for module in MODULES}
    known = {}
    for line in RESULTS.read_text().splitlines() if RESULTS.exists() else []:
        result = json.loads(line)
        holds = modules.get(result["module"]) == result["module_hash"]
        if holds and not (retry and result["outcome"] == "survived" and result["tests_hash"] != tests):
            known[result["key"]] = result
        else:
            known.pop(result["key"], None)
    return known


def run(seed: int, count: int, only: str | None = None) -> None:
    """Tries what is not known yet."""
    known = known_results(retry=True)
    todo = [mutant for mutant in sampled(seed, count, only) if mutant.key not in known]
    print(f"{count - len(todo)} of {count} known, {len(todo)} to try", flush=True)
    if todo:
        trial.collect(test_files(), lambda loop: _try_all(loop, todo))


def _try_all(loop: trial.Loop, todo: list[Mutant]) -> None:
    reached = _reached(loop)
    tests_hash = digest(map(Path, test_files()))
    hashes = {module: digest([Path(module)]) for module in MODULES}
    for number, mutant in enumerate(todo, 1):
        start_s = time.monotonic()
        outcome, test = _try(loop, mutant, _tests_for(mutant, reached))
        result = {
            "key": mutant.key,
            "module": mutant.module,
            "line": mutant.line,
            "outcome": outcome,
            "test": test,
            "seconds": round(time.monotonic() - start_s, 1),
            "module_hash": hashes[mutant.module],
            "tests_hash": tests_hash,
        }
        with RESULTS.open("a") as file:
            file.write(json.dumps(result) + "\n")
        with (FOLDER / "progress.log").open("a") as out:
            out.write(
                f"{number}/{len(todo)} {result['seconds']} s {outcome} line {mutant.line} {mutant.key}\n"
            )


def _try(loop: trial.Loop, mutant: Mutant, tests: trial.Timed) -> tuple[str, str | None]:
    outcome, test = "survived", None
    if not tests:
        return "survived", "no test reaches it"
    if mutant.function is not None:
        outcome, test = _confirmed(lambda m, t: trial.try_in_fork(loop, m, t), mutant, tests)
    if outcome == "error" or mutant.function is None:
        outcome, test = _confirmed(trial.try_in_new_process, mutant, tests)
    return outcome, test


def _confirmed(
    attempt: Callable[[Mutant | None, trial.Timed], tuple[str, str | None]],
    mutant: Mutant,
    tests: trial.Timed,
) -> tuple[str, str | None]:
    """A test that fails without the mutant too, under load say, is no witness: the others are asked."""
    outcome, test = attempt(mutant, tests)
    while outcome in ("killed", "timeout") and test is not None:
        if attempt(None, [asked for asked in tests if asked[0] == test])[0] == "survived":
            return outcome, test
        tests = [asked for asked in tests if asked[0] != test]
        outcome, test = attempt(mutant, tests)
    return outcome, test


def _tests_for(mutant: Mutant, reached: dict[str, trial.Reached]) -> trial.Timed:
    """Those that enter the function, cheap ones first; on import, all of the module's."""

    def hit(functions: list[str]) -> bool:
        if mutant.function is None:
            return any(name.startswith(f"{mutant.module}::") for name in functions)
        return f"{mutant.module}::{mutant.function}" in functions

    found = sorted((r.cpu_s, name) for name, r in reached.items() if r.passed and hit(r.functions))
    taken, total_s = [], 0.0
    for cpu_s, name in found:
        total_s += cpu_s
        if total_s > trial.MOST_TESTS_S and taken:
            break
        taken.append((name, cpu_s))
    return taken


def _reached(loop: trial.Loop) -> dict[str, trial.Reached]:
    """Measured once for every test file, and again when it or a module that it reaches changed."""
    stored: dict[str, Any] = json.loads(REACH.read_text()) if REACH.exists() else {}
    files = test_files()
    for file in files:
        if file not in stored or stored[file]["state"] != _state(file, stored[file]["tests"]):
            tests = _measured(loop, file)
            stored[file] = {"state": _state(file, tests), "tests": tests}
            REACH.write_text(json.dumps(stored))
    return {name: trial.Reached(**facts) for file in files for name, facts in stored[file]["tests"].items()}


def _state(file: str, tests: dict[str, Any]) -> str:
    reached = {name.partition("::")[0] for facts in tests.values() for name in facts["functions"]}
    return digest(Path(name) for name in (file, *reached) if Path(name).exists())


def _measured(loop: trial.Loop, file: str) -> dict[str, Any]:
    part = trial.Loop(lambda _: None)
    part.items = {name: item for name, item in loop.items.items() if name.partition("::")[0] == file}
    part.passes = loop.passes  # type: ignore[method-assign]
    lines = FOLDER / "reaching.jsonl"
    lines.write_text("")

    def write(name: str, reached: trial.Reached) -> None:
        with lines.open("a") as out:
            out.write(json.dumps([name, asdict(reached)]) + "\n")

    trial.in_fork(lambda pipe: trial.reach(part, set(MODULES), write), cpu_s=600.0)
    return dict(json.loads(line) for line in lines.read_text().splitlines())
