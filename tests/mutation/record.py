"""The published record of a sample: ``docs/results/mutation.json`` and the page beside it."""

from __future__ import annotations

import json
import platform
import tomllib
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.mutation.mutants import Mutant
from tests.mutation.targets import MODULES, TESTS
from tests.mutation.trial import MOST_TESTS_S
from tests.mutation.worker import known_results, sampled

EQUIVALENT = Path("tests/mutation/equivalent.toml")
GOAL = 0.97


def equivalent_reasons() -> dict[str, str]:
    """Mutants that no test can notice, judged by hand, and why."""
    judged = tomllib.loads(EQUIVALENT.read_text())["mutant"]
    return {one["key"]: one["why"] for one in judged}


def publish(seed: int, count: int) -> None:
    """Writes both, from the results so far that hold for the tree as it is."""
    facts = summary(sampled(seed, count), known_results(), equivalent_reasons())
    facts = {"date": datetime.now(UTC).date().isoformat(), "seed": seed, **facts}
    results = Path("docs/results")
    (results / "mutation.json").write_text(json.dumps(facts, indent=2) + "\n")
    (results / "mutation.md").write_text(page(facts))


def summary(
    sample: list[Mutant], known: dict[str, dict[str, Any]], reasons: dict[str, str]
) -> dict[str, Any]:
    """Counts, by module and over all; equivalent ones only if they survived."""
    ran = [known[mutant.key] for mutant in sample if mutant.key in known]
    survived = [result for result in ran if result["outcome"] == "survived"]
    equivalent = [result for result in survived if result["key"] in reasons]
    outcomes = Counter(result["outcome"] for result in ran)
    killed = outcomes["killed"] + outcomes["timeout"]
    modules = {}
    for module in MODULES:
        mine = [result for result in ran if result["module"] == module]
        if mine:
            left = [r for r in mine if r["outcome"] == "survived"]
            same = sum(r["key"] in reasons for r in left)
            modules[module] = {"run": len(mine), "survived": len(left) - same, "equivalent": same}
    return {
        "tool": "tests/mutation (make mutate)",
        "python": platform.python_version(),
        "sampled": len(sample),
        "run": len(ran),
        "killed": killed,
        "of_them_by_time_limit": outcomes["timeout"],
        "survived": len(survived) - len(equivalent),
        "equivalent": len(equivalent),
        "killed_share": round(killed / max(1, len(ran) - len(equivalent)), 4),
        "modules": modules,
        "survivors": [_told(result) for result in survived if result["key"] not in reasons],
        "equivalents": [{**_told(result), "why": reasons[result["key"]]} for result in equivalent],
    }


def _told(result: dict[str, Any]) -> dict[str, Any]:
    return {"line": result["line"], "mutant": result["key"]}


def page(facts: dict[str, Any]) -> str:
    """What was found, and how."""
    share, run = facts["killed_share"], facts["run"]
    reached = "reached" if share >= GOAL and run >= facts["sampled"] else "not reached"
    lines = [
        "# Mutation run: would a test notice?",
        "",
        (
            f"**{100 * share:.1f} % of the mutants that are not equivalent die** ({facts['killed']} of"
            f" {run - facts['equivalent']}; goal {100 * GOAL:.0f} %: {reached})."
        ),
        (
            f"Sample: seed {facts['seed']}, {run} of {facts['sampled']} run, {len(facts['modules'])} modules,"
            f" {facts['date']}, Python {facts['python']}."
        ),
        (
            f"{facts['survived']} survived, {facts['equivalent']} are equivalent (reasons below),"
            f" {facts['of_them_by_time_limit']} died by their time limit."
        ),
        f"A lower bound: of tests without live parts, {MOST_TESTS_S:g} s are asked for each mutant.",
        "",
        (
            '`make mutate` runs it, not in CI; `MUTATE="--seed 3 --count 300"` chooses the sample, and an'
            " interrupted run goes on. How: [decision 39](../decisions/0039-a-mutation-run-of-our-own.md)."
        ),
        "The numbers: [mutation.json](mutation.json).",
        "",
        "## What is mutated",
        "",
        "| module | run | survived | equivalent |",
        "| --- | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {m} | {c['run']} | {c['survived']} | {c['equivalent']} |" for m, c in facts["modules"].items()
    ]
    lines += ["", f"Tests asked: {', '.join(f'`{name}`' for name in TESTS)}.", ""]
    lines += ["## Survivors", ""] + [_line(one) for one in facts["survivors"]] + [""]
    lines += ["## Equivalent", ""] + [f"{_line(one)} {one['why']}" for one in facts["equivalents"]]
    return "\n".join(lines).rstrip() + "\n"


def _line(one: dict[str, Any]) -> str:
    place, _, change = one["mutant"].partition(": ")
    return f"- `{place}` (line {one['line']}): `{change.replace('`', chr(39))}`."
