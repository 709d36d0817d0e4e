"""The loop over a sample of mutants, inside the scratch copy. What is known is not tried again."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.mutation import trial
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.targets import LIVE, MODULES, TESTS

FOLDER = Path(os.environ.get("JOULEFLEET_MUTATION", "/var/tmp/joulefleet-mutation"))
"""Outside the tree: the scratch copy, and what is known."""

RESULTS = FOLDER / "results.jsonl"
REACH = FOLDER / "reach.json"


def sampled(seed: int, count: int, only: str = "") -> list[Mutant]:
    """By a hash of seed and mutant: a change of one module does not draw the others anew.

    With ``only`` of the modules whose path begins so, or in one of several ways with commas between.
    """
    modules = [module for module in MODULES if module.startswith(tuple(only.split(",")))]
    found = [mutant for module in modules for mutant in mutants_of(Path.cwd(), module)]
    found.sort(key=lambda mutant: hashlib.sha256(f"{seed} {mutant.key}".encode()).digest())
    return found[:count]


def digest(paths: Iterable[Path]) -> str:
    """Of files together."""
    whole = hashlib.sha256()
    for path in sorted(paths):
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]


def test_files() -> list[str]:
    """All that are asked."""
    here = Path()
    left_out = {path for pattern in LIVE for path in here.glob(pattern)}
    return sorted({str(path) for pattern in TESTS for path in here.glob(pattern) if path not in left_out})


def known_results(*, retry: bool = False) -> dict[str, dict[str, Any]]:
    """The last of each mutant, where its module is the same and so is the test that it died of.

    With ``retry`` without those that survived tests which have changed since.
    """
    tests, modules = (
        digest(_with_helpers(test_files())),
        {module: digest([Path(module)]) for module in MODULES},
    )
    witnesses = {file: digest(_with_helpers([file])) for file in test_files()}
    known = {}
    for result in stored_results():
        holds = modules.get(result["module"]) == result["module_hash"]
        if result["outcome"] == "survived":
            holds &= not retry or result["tests_hash"] == tests
        else:
            holds &= witnesses.get(_file(result["test"])) == result["test_hash"]
        if holds:
            known[result["key"]] = result
        else:
            known.pop(result["key"], None)
    return known


def stored_results() -> Iterator[dict[str, Any]]:
    """All that was ever found, also of code that has changed since."""
    yield from map(json.loads, RESULTS.read_text().splitlines() if RESULTS.exists() else [])


def _file(test: str | None) -> str:
    return (test or "").partition("::")[0]


def _with_helpers(files: Iterable[str]) -> set[Path]:
    """Test files and what lies beside them for them to use."""
    return {
        path
        for file in files
        for path in (Path(file), *Path(file).parent.glob("*.py"))
        if path == Path(file) or not path.name.startswith("test_")
    }


def run(seed: int, count: int, only: str = "") -> None:
    """Tries what is not known yet."""
    known = known_results(retry=True)
    sample = sampled(seed, count, only)
    todo = [mutant for mutant in sample if mutant.key not in known]
    print(f"{len(sample) - len(todo)} of {len(sample)} known, {len(todo)} to try", flush=True)
    if todo:
        trial.collect(test_files(), lambda loop: _try_all(loop, todo))


def _try_all(loop: trial.Loop, todo: list[Mutant]) -> None:
    reached = _reached(loop)
    hashes = {module: digest([Path(module)]) for module in MODULES}
    facts = {"tests_hash": digest(_with_helpers(test_files()))}
    witness = {
        result["key"]: result["test"] for result in stored_results() if result["outcome"] != "survived"
    }
    for number, mutant in enumerate(todo, 1):
        start_s = time.monotonic()
        tests, left_out = asked_for(mutant, reached, witness.get(mutant.key))
        outcome, test = _try(loop, mutant, tests)
        result = {
            "key": mutant.key,
            "module": mutant.module,
            "line": mutant.line,
            "outcome": outcome,
            "test": test,
            "asked": len(tests),
            "not_asked": left_out,
            "seconds": round(time.monotonic() - start_s, 1),
            "module_hash": hashes[mutant.module],
            "test_hash": digest(_with_helpers([_file(test)])) if outcome != "survived" and test else "",
            **facts,
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
        # The nearest file alone at first: a new process imports what its tests import.
        nearest = [asked for asked in tests if _file(asked[0]) == _file(tests[0][0])]
        others = [asked for asked in tests if asked not in nearest]
        for some in filter(None, (nearest, others)):
            outcome, test = _confirmed(trial.try_in_new_process, mutant, some)
            if outcome != "survived":
                break
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


def asked_for(
    mutant: Mutant, reached: dict[str, trial.Reached], witness: str | None = None
) -> tuple[trial.Timed, int]:
    """Those that execute the changed statement, cheap and near ones first, and how many are not asked.

    Args:
        mutant: What is evaluated on import, all tests of the files with tests of its module may notice.
        reached: What each test executes.
        witness: A test that noticed it in another state of the tree; it is asked first.
    """
    found = {name: r for name, r in reached.items() if r.passed and r.executes(mutant)}
    if mutant.function is None:  # a table or a default may be looked at without a function being entered
        files = {_file(name) for name in found}
        found = {name: r for name, r in reached.items() if r.passed and _file(name) in files}
    order = sorted(found, key=lambda name: (name != witness, found[name].distance(mutant.module), name))
    taken, total_s = [], 0.0
    for name in order:
        cpu_s = found[name].cpu_s
        if cpu_s <= trial.LONGEST_TEST_S and total_s + cpu_s <= trial.MOST_TESTS_S:
            total_s += cpu_s
            taken.append((name, cpu_s))
    return taken, len(found) - len(taken)


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
    """Of what a trace depends on; the list of modules is part of it, since no others are traced."""
    reached = {Path(name) for facts in tests.values() for name in facts["lines"]}
    listed = hashlib.sha256(" ".join(sorted(MODULES)).encode()).hexdigest()[:8]
    return listed + digest(_with_helpers([file]) | {path for path in reached if path.exists()})


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
