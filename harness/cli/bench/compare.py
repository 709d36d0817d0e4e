"""``joulefleet bench compare`` and ``bench check``: before and after, for people and for build servers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Command, Output, columns, root_option, run_argument, share
from joulefleet.rounding import rounded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.profiles.difference import Difference, QuantityChange
    from harness.results.before_after import RunDifference
    from harness.results.gate import GateCheck
    from power import DeviceProfile

STARRED = "* fewer than three sessions: the spread between days is not in this interval (--between-sessions)"
SHOWN = {
    *(f"{phase}.{what}" for phase in ("probe", "epoch", "round") for what in ("duration_s", "gross_j")),
    *("idle_power_w", "wait_power_w"),
}
"""Quantities of the table; all others with ``--all``."""
WORDS = {"duration_s": "time", "gross_j": "energy"}


_between = click.option(
    "--between-sessions",
    "between",
    type=share,
    default="0",
    metavar="SHARE",
    help="Standard deviation between sessions over the mean, such as 3%; for fewer than three sessions.",
)


@click.command("compare", cls=Command)
@root_option()
@click.argument("before", metavar="RUN_A")
@click.argument("after", metavar="RUN_B")
@_between
@click.option("--all", "everything", is_flag=True, help="Net and marginal energies and every load, too.")
def compare(root: Path, before: str, after: str, between: float, everything: bool) -> Output:
    """How costs changed from RUN_A to RUN_B, with intervals, and what else was not the same."""
    from harness.results.before_after import compare_bench_runs
    from joulefleet.runstore import find_run

    found = compare_bench_runs(find_run(root, before), find_run(root, after), between_sessions=between)
    return Output(_compare_data(found), _compare_lines(found, everything))


def _compare_lines(found: RunDifference, everything: bool) -> list[str]:
    lines = [_answer(difference) for difference in found.differences]
    right = ("before", "after", "change")
    rows = [row for difference in found.differences for row in _rows(difference, everything)]
    lines.append(columns(("device", "task", "quantity", *right, ""), rows, right))
    if any(change.sessions_unknown for difference in found.differences for change in difference.changes):
        lines.append(STARRED)
    lines += [f"only in the first: {profile.label}" for profile in found.only_before]
    lines += [f"only in the second: {profile.label}" for profile in found.only_after]
    others = list(_others(found))
    return [*lines, "what else differs:", *others] if others else [*lines, "nothing else differs"]


def _others(found: RunDifference) -> Iterable[str]:
    for difference in found.differences:
        for text in difference.other_work:
            yield f"  {difference.after.label}: {text} (not the same work)"
        for text in difference.other_conditions:
            yield f"  {difference.after.label}: {text}"
    for device, facts in found.conditions.items():
        for text in facts:
            yield f"  {device}: {text}" if device else f"  {text}"


def _answer(difference: Difference) -> str:
    """``board-a, mnist-lenet5 with torch: an epoch takes 3.1 % more energy [+1, +5.2] % and ...``."""
    after = difference.after
    parts = []
    for place in ("epoch.gross_j", "epoch.duration_s"):
        change, word = difference.change(place), WORDS[place.partition(".")[2]]
        if change is not None and not math.isnan(change.ratio.mean):
            parts.append(_words(change, word))
    known = " and ".join(parts) or "nothing that can be compared"
    work = " (not the same work, see below)" if difference.other_work else ""
    return f"{after.device}, {after.task} with {after.backend}: an epoch takes {known}{work}"


def _words(change: QuantityChange, word: str) -> str:
    percent = (change.ratio.mean - 1) * 100
    amount = f"{rounded(abs(percent), 2)} % {'more' if percent >= 0 else 'less'} {word}"
    if not change.ratio.known:
        return f"{amount} (interval not known)"
    if not change.clear:
        amount = f"the same {word} as far as can be told"
    return f"{amount} {change.interval_text()} %"


def _rows(difference: Difference, everything: bool) -> Iterable[list[str]]:
    from harness.cli.profile.view import number

    after = difference.after
    for change in difference.changes:
        if not everything and change.place not in SHOWN:
            continue
        star = "*" if change.sessions_unknown else ""
        known = "clear" if change.clear else ""
        yield [
            after.device,
            f"{after.task} {after.backend}",
            change.place,
            number(change.before),
            number(change.after),
            change.percent_text() + star,
            known,
        ]


def _compare_data(found: RunDifference) -> dict[str, Any]:
    return {
        "before": str(found.before),
        "after": str(found.after),
        "differences": [
            {
                "label": difference.after.label,
                "changes": [_change_data(change) for change in difference.changes],
                "other_work": difference.other_work,
                "other_conditions": difference.other_conditions,
            }
            for difference in found.differences
        ],
        "conditions": {device or "host": facts for device, facts in found.conditions.items()},
        "only_before": [profile.label for profile in found.only_before],
        "only_after": [profile.label for profile in found.only_after],
    }


def _change_data(change: QuantityChange) -> dict[str, Any]:
    ratio = change.ratio
    values = {"ratio": ratio.mean, "ratio_low_95": ratio.low, "ratio_high_95": ratio.high}
    return {
        "place": change.place,
        "before": change.before.model_dump(),
        "after": change.after.model_dump(),
        **{name: None if math.isnan(value) else value for name, value in values.items()},
        "clear": change.clear,
        "same_unit": change.same_unit,
        "sessions_unknown": change.sessions_unknown,
    }


@click.command("check", cls=Command)
@run_argument
@click.option("--against", required=True, metavar="PROFILE", help="A profile's file or id, or a run.")
@click.option("--max-increase", required=True, type=share, metavar="SHARE", help="Such as 5%.")
@click.option(
    "--quantity",
    "places",
    multiple=True,
    metavar="NAME",
    help="What is checked, such as epoch.duration_s; may be repeated. "
    "By default the energy of the first epoch and of a later one.",
)
@_between
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write JUnit XML there.")
@click.option("--strict", is_flag=True, help="Fail (exit code 6) where it cannot be told, too.")
def check(
    run: Path,
    against: str,
    max_increase: float,
    places: tuple[str, ...],
    between: float,
    junit: Path | None,
    strict: bool,
) -> Output:
    """Fail (exit code 1) if RUN needs more than a profile allows, beyond what the intervals explain."""
    from harness.export.junit import write_gate_junit
    from harness.profiles.library import profiles_at
    from harness.results.gate import PLACES, Outcome, check_profiles
    from joulefleet.errors import EXIT_DATA_QUALITY, EXIT_FAILED

    checks = check_profiles(
        profiles_at([run]),
        _baseline(against, run.parent),
        max_increase,
        places=places or PLACES,
        between_sessions=between,
    )
    if junit is not None:
        write_gate_junit(checks, max_increase, junit)
    found = {one.outcome for one in checks}
    code = EXIT_FAILED if Outcome.FAILED in found else 0
    if not code and (Outcome.NOT_MEASURED in found or (strict and Outcome.CANNOT_TELL in found)):
        code = EXIT_DATA_QUALITY
    return Output(_check_data(checks, max_increase), _check_lines(checks, max_increase), exit_code=code)


def _baseline(name: str, root: Path) -> list[DeviceProfile]:
    """The profiles of a run, or one profile."""
    from harness.profiles.library import find_profile, profiles_at
    from joulefleet.errors import StorageError
    from joulefleet.runstore import find_run

    if not name.endswith(".json"):
        try:
            return profiles_at([find_run(root, name)])
        except StorageError:
            pass  # no run: then it is a profile
    return [find_profile(name, root).profile]


def _check_lines(checks: Sequence[GateCheck], max_increase: float) -> list[str]:
    counts = {one.outcome: 0 for one in checks}
    for one in checks:
        counts[one.outcome] += 1
    said = ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items())
    lines = [f"limit +{max_increase * 100:.3g} %: {said}"]
    rows = [
        [
            one.outcome.value,
            one.label,
            one.place,
            one.change.percent_text() if one.change else "-",
            one.reason,
        ]
        for one in checks
    ]
    lines.append(columns(("", "profile", "quantity", "change", ""), rows, ("change",)))
    return [*lines, STARRED] if any(one.change and one.change.sessions_unknown for one in checks) else lines


def _check_data(checks: Sequence[GateCheck], max_increase: float) -> dict[str, Any]:
    return {
        "max_increase": max_increase,
        "checks": [
            {
                "label": one.label,
                "outcome": one.outcome.value,
                "reason": one.reason,
                **(_change_data(one.change) if one.change else {"place": one.place}),
            }
            for one in checks
        ],
    }
