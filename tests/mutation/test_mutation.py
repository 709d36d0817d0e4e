"""The mutation run itself: which changes it makes, and that survivors and killed ones are told apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation import worker
from tests.mutation.mutants import mutants_of
from tests.mutation.record import page, summary
from tests.mutation.targets import LIVE, MODULES, TESTS
from tests.mutation.trial import Reached
from tests.mutation.worker import asked_for

REPOSITORY = Path(__file__).resolve().parents[2]

MODULE = '''
"""A docstring with 1 + 1."""
LIMIT = 10

class Scale:
    def of(self, values: list[int], *, factor: int = 2) -> float:
        """Also 2 > 1."""
        if not values:
            raise ValueError(f"nothing of {LIMIT + 1}")
        return max(v * factor for v in values if v < LIMIT)
'''

TEST = """
from module import Scale

class Sly:  # as a lazy object of a library: nobody may ask what it is
    __class__ = property(lambda self: 1 / 0)

SLY = Sly()

def test_scale():
    assert Scale().of([1, 2, 12]) == 4
"""

TRIAL = """
import json
from pathlib import Path
from tests.mutation import trial
from tests.mutation.mutants import mutants_of

found = {}

def body(loop):
    for mutant in mutants_of(Path.cwd(), "module.py"):
        if mutant.function:
            found[mutant.key] = trial.try_in_fork(loop, mutant, [("test_module.py::test_scale", 0.1)])[0]
        else:
            found[mutant.key] = trial.try_in_new_process(mutant, [("test_module.py::test_scale", 0.1)])[0]

    trial.reach(loop, {"module.py"}, lambda name, reached: found.update({name: reached.lines}))

trial.collect(["test_module.py"], body)
Path("found.json").write_text(json.dumps(found))
"""


def test_mutants_are_changes_that_a_test_should_notice(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(MODULE)
    found = mutants_of(tmp_path, "module.py")
    assert [(m.function, m.was, m.now) for m in found] == [
        (None, "10", "11"),
        (None, "10", "20"),
        (None, "2", "3"),
        (None, "2", "4"),
        ("Scale.of", "not values", "values"),
        ("Scale.of", "raise ValueError(f'nothing of {LIMIT + 1}')", "pass"),
        (
            "Scale.of",
            "max((v * factor for v in values if v < LIMIT))",
            "min((v * factor for v in values if v < LIMIT))",
        ),
        (
            "Scale.of",
            "(v * factor for v in values if v < LIMIT)",
            "(v * factor for v in list(values)[:1] if v < LIMIT)",
        ),
        ("Scale.of", "(v * factor for v in values if v < LIMIT)", "(v * factor for v in values)"),
        ("Scale.of", "v * factor", "v / factor"),
        ("Scale.of", "v < LIMIT", "v <= LIMIT"),
        ("Scale.of", "v < LIMIT", "v >= LIMIT"),
    ]
    for mutant in found:
        compile(mutant.apply(), "module.py", "exec")


def test_killed_and_survivors_are_told_apart(tmp_path: Path) -> None:
    """Of a module with one weak test: nobody looks at an empty list, at 10, or at the limit's value."""
    work = tmp_path / "work"
    work.mkdir()
    for name, text in (("module.py", MODULE), ("test_module.py", TEST), ("trial.py", TRIAL)):
        (work / name).write_text(text)
    (work / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    environment = {**os.environ, "PYTHONPATH": f"{work}:{REPOSITORY}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "trial.py"], cwd=work, env=environment, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((work / "found.json").read_text())
    assert found.pop("test_module.py::test_scale") == {"module.py": [7, 8, 10]}, "all but the raise"
    survived = [key.partition(": ")[2] for key, outcome in found.items() if outcome == "survived"]
    assert survived == [
        "10 -> 11",
        "raise ValueError(f'nothing of {LIMIT + 1}') -> pass",
        "v < LIMIT -> v <= LIMIT",
    ]
    assert set(found.values()) == {"survived", "killed"}
    assert (work / "module.py").read_text() == MODULE


def test_equivalent_mutants_do_not_count_and_what_was_not_run_is_said(tmp_path: Path) -> None:
    (tmp_path / "power").mkdir()
    module = MODULES[0]
    (tmp_path / module).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / module).write_text(MODULE)
    sample = mutants_of(tmp_path, module)[:5]
    outcomes = ("killed", "timeout", "survived", "survived")
    known = {
        mutant.key: {"key": mutant.key, "module": module, "line": mutant.line, "outcome": outcome}
        for mutant, outcome in zip(sample, outcomes, strict=False)
    }
    facts = summary(sample, known, {sample[2].key: "nobody can tell"})
    counts = {name: facts[name] for name in ("sampled", "run", "killed", "survived", "equivalent")}
    assert counts == {"sampled": 5, "run": 4, "killed": 2, "survived": 1, "equivalent": 1}
    assert facts["killed_share"] == 0.6667
    assert facts["never_seen_before"]["run"] == 4
    seen = summary(sample, known, {sample[2].key: "nobody can tell"}, {sample[0].key})["never_seen_before"]
    assert seen == {"run": 3, "killed": 1, "survived": 1, "equivalent": 1, "killed_share": 0.5}
    strict = summary(sample, known, {sample[2].key: "nobody can tell"}, judged_before={})
    assert strict["with_equivalents_judged_before"]["killed_share"] == 0.5
    assert facts["with_equivalents_judged_before"]["killed_share"] == 0.6667
    told = page([{"seed": 1, "date": "today", **strict}])
    assert "1 of the equivalent ones were judged after the sample was run" in told
    assert "make it 50.0 %" in told.replace("\n", " ")
    text = page([{"seed": 1, "date": "today", **facts}])
    assert "4 of 5 run" in text
    assert "not reached" in text
    assert "nobody can tell" in text


def test_what_is_mutated_and_asked_is_there() -> None:
    assert [name for name in (*MODULES, *TESTS, *LIVE) if not list(REPOSITORY.glob(name))] == []


def test_a_trace_holds_for_the_modules_that_were_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that reach a module which is new in the list would seem not to reach it."""
    file = "tests/mutation/test_mutation.py"
    before = worker._state(file, {})
    assert worker._state(file, {}) == before
    monkeypatch.setattr(worker, "MODULES", (*MODULES, "joulefleet/new.py"))
    assert worker._state(file, {}) != before


def test_who_executes_the_changed_statement_is_asked_and_near_ones_first(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(MODULE)
    found = {mutant.key.partition(": ")[2]: mutant for mutant in mutants_of(tmp_path, "module.py")}
    limit, raised = found["10 -> 11"], found["raise ValueError(f'nothing of {LIMIT + 1}') -> pass"]
    assert (limit.lines, raised.lines, found["not values -> values"].lines) == ((3, 3), (9, 9), (8, 8))
    reached = {
        "a.py::far": Reached(
            passed=True, cpu_s=1.0, lines={"module.py": [8, 9], "other.py": list(range(98))}
        ),
        "a.py::near": Reached(passed=True, cpu_s=2.0, lines={"module.py": [8, 9]}),
        "a.py::beside": Reached(passed=True, cpu_s=0.1, lines={"module.py": [8, 10]}),
        "a.py::long": Reached(passed=True, cpu_s=10.5, lines={"module.py": [8, 9]}),
        "b.py::elsewhere": Reached(passed=True, cpu_s=0.1, lines={"other.py": [9]}),
        "a.py::fails": Reached(passed=False, cpu_s=0.1, lines={"module.py": [9]}),
    }
    near, far, beside = ("a.py::near", 2.0), ("a.py::far", 1.0), ("a.py::beside", 0.1)
    assert asked_for(raised, reached) == ([near, far], 1)
    assert asked_for(raised, reached, "a.py::far") == ([far, near], 1)
    # A constant may be looked at without any function being entered, but by tests of the same file.
    reached["a.py::looks"] = Reached(passed=True, cpu_s=0.01, lines={})
    assert asked_for(limit, reached) == ([("a.py::looks", 0.01), beside, near, far], 1)


def test_of_what_is_evaluated_on_import_the_nearest_file_is_asked_alone_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module.py").write_text(MODULE)
    limit = mutants_of(tmp_path, "module.py")[0]
    tests = [("a.py::x", 1.0), ("b.py::y", 1.0), ("a.py::z", 2.0), ("c.py::w", 9.0)]
    asked: list[tuple[bool, list[str]]] = []

    def attempt(mutant: object, some: list[tuple[str, float]]) -> tuple[str, str | None]:
        names = [name for name, _ in some]
        asked.append((mutant is limit, names))
        return ("killed", "b.py::y") if mutant is limit and "b.py::y" in names else ("survived", None)

    monkeypatch.setattr(worker.trial, "try_in_new_process", attempt)
    assert worker._try(None, limit, tests) == ("killed", "b.py::y")  # type: ignore[arg-type]
    assert asked == [
        (True, ["a.py::x", "a.py::z"]), (True, ["b.py::y", "c.py::w"]), (False, ["b.py::y"]),
    ]  # fmt: skip
    assert worker._try(None, limit, tests[:1]) == ("survived", None)  # type: ignore[arg-type]
