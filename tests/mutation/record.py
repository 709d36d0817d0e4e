"""The published record of a sample: ``docs/results/mutation.json`` and the page beside it."""

from __future__ import annotations

import json
import platform
import tomllib
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.mutation.mutants import Mutant
from tests.mutation.targets import DEVELOPMENT, LIVE, MODULES, TESTS
from tests.mutation.trial import LONGEST_TEST_S, MOST_TESTS_S
from tests.mutation.worker import known_results, sampled

EQUIVALENT = Path("tests/mutation/equivalent.toml")
GOAL = 0.97
FRESH = 100
"""Seeds from here on are for the record: nobody looks at their mutants before."""


def equivalent_reasons(before: int | None = None) -> dict[str, str]:
    """Mutants that no test can notice, judged by hand, and why.

    Args:
        before: Only those that were judged before this sample was seen.
    """
    judged = tomllib.loads(EQUIVALENT.read_text())["mutant"]
    return {one["key"]: one["why"] for one in judged if before is None or one.get("after") != before}


def publish(seed: int, count: int, development: Iterable[Path] = (), note: str = "") -> None:
    """Writes both, from the results so far that hold for the tree as it is; other samples stay in.

    Args:
        seed: Of the sample.
        count: Of its mutants.
        note: What a reader has to know besides.
        development: Results of samples before which tests were written, beside those of `DEVELOPMENT`.
    """
    seen = {json.loads(line)["key"] for file in development for line in file.read_text().splitlines()}
    seen |= {mutant.key for drawn in DEVELOPMENT for mutant in sampled(*drawn)}
    facts = summary(
        sampled(seed, count), known_results(), equivalent_reasons(), seen, equivalent_reasons(seed)
    )
    facts = {"note": note, "date": datetime.now(UTC).date().isoformat(), "seed": seed, **facts}
    results = Path("docs/results")
    before = json.loads((results / "mutation.json").read_text())["samples"]
    samples = [*(one for one in before if one["seed"] != seed), facts]
    (results / "mutation.json").write_text(json.dumps({"samples": samples}, indent=2) + "\n")
    (results / "mutation.md").write_text(page(samples))


def summary(
    sample: list[Mutant],
    known: dict[str, dict[str, Any]],
    reasons: dict[str, str],
    seen: Collection[str] = (),
    judged_before: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Counts, by module and over all; equivalent ones only if they survived.

    Args:
        sample: What was to be run.
        known: What was found.
        reasons: Equivalent mutants, and why they are.
        seen: Mutants that were in a sample before which tests were written.
        judged_before: Those of the reasons that are older than the sample; all, if it is not given.
    """
    judged_before = reasons if judged_before is None else judged_before
    ran = [known[mutant.key] for mutant in sample if mutant.key in known]
    modules = {module: [result for result in ran if result["module"] == module] for module in MODULES}
    survived = [result for result in ran if result["outcome"] == "survived"]
    return {
        "tool": "tests/mutation (make mutate)",
        "python": platform.python_version(),
        "sampled": len(sample),
        **_counts(ran, reasons),
        "with_equivalents_judged_before": _counts(ran, judged_before),
        "of_them_by_time_limit": sum(result["outcome"] == "timeout" for result in ran),
        "survivors_with_tests_not_asked": sum(result.get("not_asked", 0) > 0 for result in survived),
        "never_seen_before": _counts([result for result in ran if result["key"] not in seen], reasons),
        "modules": {module: _counts(mine, reasons) for module, mine in modules.items() if mine},
        "survivors": [_told(result) for result in survived if result["key"] not in reasons],
        "equivalents": [
            {**_told(result), "why": reasons[result["key"]]}
            for result in survived
            if result["key"] in reasons
        ],
    }


def _counts(ran: list[dict[str, Any]], reasons: dict[str, str]) -> dict[str, Any]:
    survived = [result["key"] for result in ran if result["outcome"] == "survived"]
    equivalent = sum(key in reasons for key in survived)
    killed = len(ran) - len(survived)
    return {
        "run": len(ran),
        "killed": killed,
        "survived": len(survived) - equivalent,
        "equivalent": equivalent,
        "killed_share": round(killed / max(1, len(ran) - equivalent), 4),
    }


def _told(result: dict[str, Any]) -> dict[str, Any]:
    return {"line": result["line"], "mutant": result["key"]}


def page(samples: list[dict[str, Any]]) -> str:
    """What was found, and how; the last sample in full."""
    facts = samples[-1]
    share, run, new = facts["killed_share"], facts["run"], facts["never_seen_before"]
    strict = facts["with_equivalents_judged_before"]
    late = facts["equivalent"] - strict["equivalent"]
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
        (
            f"{late} of the equivalent ones were judged after the sample was run; counted as survivors they"
            f" make it {100 * strict['killed_share']:.1f} %."
        ),
        (
            f"{new['run']} of them were never tried while tests were written:"
            f" {100 * new['killed_share']:.1f} % of those die ({new['killed']} of"
            f" {new['run'] - new['equivalent']})."
        ),
        (
            "Tests without live parts that execute the changed statement are asked, if they take less than"
            f" {LONGEST_TEST_S:g} s, for {MOST_TESTS_S:g} s at most;"
            f" for {facts['survivors_with_tests_not_asked']} survivors some were left out."
        ),
        "",
        (
            '`make mutate` runs it, not in CI; `MUTATE="--seed 3 --count 300"` chooses the sample, and an'
            " interrupted run goes on. How: [decision 39](../decisions/0039-a-mutation-run-of-our-own.md)."
        ),
        "The numbers: [mutation.json](mutation.json).",
        "",
        "## Samples",
        "",
        "Tests were written after the survivors of development samples (seeds below 100).",
        "What a sample found holds for the tree of its day.",
        "",
        "| seed | use | date | run | killed | survived | equivalent | share |",
        "| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines[8:8] = [facts["note"]] if facts.get("note") else []
    lines += [
        f"| {one['seed']} | {'development' if one['seed'] < FRESH else 'test'} | {one['date']} | {one['run']}"
        f" | {one['killed']} | {one['survived']} | {one['equivalent']} | {100 * one['killed_share']:.1f} % |"
        for one in samples
    ]
    lines += ["", "## What is mutated", "", "| module | run | survived | equivalent |"]
    lines += ["| --- | ---: | ---: | ---: |"]
    lines += [
        f"| {m} | {c['run']} | {c['survived']} | {c['equivalent']} |" for m, c in facts["modules"].items()
    ]
    lines += ["", f"Tests asked: {', '.join(f'`{name}`' for name in TESTS)};"]
    lines += [
        f"of these not: {', '.join(f'`{name}`' for name in LIVE)} (live parts, or long computations).",
        "",
    ]
    lines += ["## Survivors", ""] + [_line(one) for one in facts["survivors"]] + [""]
    lines += ["## Equivalent", ""] + [f"{_line(one)} {one['why']}" for one in facts["equivalents"]]
    return "\n".join(lines).rstrip() + "\n"


def _line(one: dict[str, Any]) -> str:
    place, _, change = one["mutant"].partition(": ")
    return f"- `{place}` (line {one['line']}): `{change.replace('`', chr(39))}`."
