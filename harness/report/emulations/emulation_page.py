"""The page of a run of `joulefleet emulate`: the parts of an experiment's page for one's own scenario."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from emulator import Accounting, Scenario
from emulator.compare import load_emulations
from emulator.compare.titles import worded
from emulator.experiments import Runs, Variant, VariantSummary, summary_of
from emulator.experiments.render import basis, headed
from emulator.runs import (
    FinishedRun,
    Floors,
    Replay,
    course_of,
    penalties_of,
    replay_of,
    share,
    span,
    week_of,
)
from emulator.selectors import shown_name
from harness.report.emulations.answers import variant_answers
from harness.report.emulations.charts import course_charts
from harness.report.emulations.experiment_page import (
    vanilla_sections,
    variant_curves,
    variant_tables,
    warnings_section,
)
from harness.report.looks import method_looks
from harness.report.page import Fold, Page, Section, Table, text_of
from joulefleet.provenance import Origin
from joulefleet.runstore import RunRecord
from joulefleet.runstore.notes import read_notes
from joulefleet.runstore.run import read_run

OWN = "a scenario of its own, shown below"
TOTALS = (
    *("method", "seeds", "finished", "accuracy %", "best accuracy %", "time of rounds s", "calendar time h"),
    *("energy without waiting J", "here"),
)
TOTALS_NOTE = (
    "Whole runs: means over seeds [95 % interval]. Finished: devices that sent the update they were asked "
    "for. Accuracy: mean test accuracy of the last 10 rounds. Calendar time: with the pauses between rounds."
)
ROUNDS = (
    *("method", "s per round: honest", "selected only", "free"),
    *("J per round without waiting: honest", "selected only", "free", "here"),
)
ROUNDS_NOTE = (
    "A round. Honest: every probe is counted, as above; selected only: those of rejected devices are not; "
    "free: no probe is."
)
JUDGED = ("method", "T s", "E J", "R_T over T", "R_E over E", "reward at its limit", "here")
JUDGED_NOTE = (
    "The reward's budgets, means over seeds, and the share of rounds in which each penalty applied. One "
    "that always applies, or never, tells a method that learns by the reward nothing about costs. T and E: "
)
WORLD_NOTE = (
    "Span: calendar time from the beginning to the end of the last round. Eligible: fewest and most devices "
    "at a check-in. Under load: participations that computed beside an app. Came and went: devices that were "
    "eligible at one check-in and not at another."
)
WORLD = (*("method", "seed", "span", "eligible", "under load %", "came and went", "left", "ran low", "here"),)
DROPS = (
    *("method", "seed", "left", "battery", "late", "diverged", "dropped %", "swing of a day"),
    *("time, first to last", "energy, first to last", "devices", "here"),
)
DROPS_NOTE = (
    "Of devices that were told to train, those that did not finish, by reason; over-commitment's surplus is "
    "none. Swing: most over fewest eligible, means of an hour of the day. First to last: Spearman's "
    "correlation of a device's computing in its first and its last finished participation; 1: nothing moved."
)
AN_HOUR_S = 3600.0
"""Runs that are shorter see nothing of a day."""

EACH_RUN = "Every emulation in numbers"
HOURS = ("hour", "check-ins", "eligible", "participations", "under load %")
EACH = ("seed", "selector", "privileged", "budgets", "policy_sha256", "floors")
"""Facts of one emulation; the others are those of the scenario."""


def emulation_page(path: Path) -> Page:
    """Put a run of one scenario on a page; emulations that have not come to their end are named and left out.

    Raises:
        DataQualityError: None has come to its end.
    """
    loaded, warnings = load_emulations([path])
    run, scenario = read_run(path), loaded[0].record.scenario
    variant = Variant(name=scenario.name, title=scenario.name, scenario=scenario, reductions=(OWN,))
    summary = summary_of(variant, _runs(loaded))
    looks = method_looks(summary.runs)
    replays = [(one, replay_of(one.result)) for one in loaded]
    longest_s = max(replay.span_s for _, replay in replays)
    return Page(
        title=f"Emulation {scenario.name}",
        lead=_lead(scenario, summary),
        answers=variant_answers(summary),
        notes=read_notes(path),
        sections=[
            *([warnings_section(warnings)] if (warnings := [*warnings, *summary.warnings]) else []),
            *variant_tables(summary, looks, "Methods"),
            variant_curves(summary, looks),
            _world(replays),
            *([_day(loaded)] if scenario.fleet.traces is not None and longest_s > AN_HOUR_S else []),
            _costs(summary),
            *vanilla_sections(summary),
            _scenario(path, scenario),
            _provenance(summary),
        ],
        facts=_facts(run, loaded),
    )


def _runs(loaded: Sequence[FinishedRun]) -> Runs:
    found: dict[str, dict[int, FinishedRun]] = {}
    for one in loaded:
        found.setdefault(one.method, {})[one.seed] = one
    return found


def _lead(scenario: Scenario, summary: VariantSummary) -> str:
    protocol = scenario.protocol
    names = ", ".join(shown_name(method) for method in summary.runs)
    return (
        f"{names} on {scenario.fleet.devices:,} devices: {protocol.rounds} rounds of {protocol.k} clients "
        f"from {scenario.candidates} candidates, {protocol.local_epochs} local epochs. Emulated on a virtual "
        "clock."
    )


def _costs(summary: VariantSummary) -> Section:
    totals = [
        [
            shown_name(row.method),
            str(row.seeds),
            f"{row.finished:,} of {row.asked:,}",
            row.accuracy.text(row.shown_times),
            row.best_accuracy.text(row.shown_times),
            row.time_s.text(),
            row.calendar_s.text(1 / 3600),
            row.energy_j.text(),
            Origin.EMULATED,
        ]
        for row in summary.rows
    ]
    rounds = [
        [
            shown_name(row.method),
            *(row.round_time_s[accounting].text() for accounting in Accounting),
            *(row.round_energy_j[accounting].text() for accounting in Accounting),
            Origin.EMULATED,
        ]
        for row in summary.rows
    ]
    note = worded(TOTALS_NOTE, summary.metric)
    tables = [Table(headed(TOTALS, summary), totals, note), Table(ROUNDS, rounds, ROUNDS_NOTE)]
    return Section("What counts", f"{basis(summary)}.", tables=[*tables, judged(summary)], folded=True)


def judged(summary: VariantSummary) -> Table:
    """How often the budgets of the reward were exceeded."""
    rows = []
    for method, by_seed in summary.runs.items():
        results = [run.result for run in by_seed.values()]
        found, budgets = penalties_of(results), [result.record.facts["budgets"] for result in results]
        limits = [sum(one[name] for one in budgets) / len(budgets) for name in ("time_s", "energy_j")]
        counts = (found.over_time, found.over_energy, found.at_clip)
        shares = [share(count, found.rounds) for count in counts]
        rows.append([shown_name(method), *(f"{limit:.4g}" for limit in limits), *shares, Origin.EMULATED])
    rule = summary.facts.get("budget_rule", "by the 30 % rule")
    return Table(JUDGED, rows, f"{JUDGED_NOTE}{rule}.")


def _world(found: Sequence[tuple[FinishedRun, Replay]]) -> Section:
    """What the traces did, and what the fleet allows."""
    rows = [
        [
            shown_name(one.method),
            str(one.seed),
            span(replay.span_s),
            "{:,} to {:,}".format(*replay.eligible),
            "unknown" if replay.load_share is None else f"{replay.load_share:.1%}".rstrip("%"),
            *(_count(n) for n in (replay.devices_changed, replay.devices_left, replay.devices_low)),
            Origin.EMULATED,
        ]
        for one, replay in found
    ]
    facts = found[0][0].record.facts
    allowed = Floors(**facts["floors"]).sentences() if "floors" in facts else []
    still = sum(replay.nothing_moved for _, replay in found)
    said = [f"In {still} of {len(found)} emulations the traces changed nothing."] if still else []
    text = " ".join([*said, *(f"{line[0].upper()}{line[1:]}." for line in allowed)])
    return Section(
        "The world it ran in", text, folds=[Fold(EACH_RUN, tables=[Table(WORLD, rows, WORLD_NOTE)])]
    )


def _day(loaded: Sequence[FinishedRun]) -> Section:
    """Eligibility and load by the hour, drop-outs by reason, how costs of one round foretell others."""
    found = [(one, week_of(one.result)) for one in loaded]
    first = found[0][1]
    hours = [
        [
            f"{number:02d}",
            str(hour.check_ins),
            f"{hour.eligible:.0f}",
            str(hour.participations),
            _percent(hour.under_load, hour.participations),
        ]
        for number, hour in enumerate(first.hours)
        if hour.check_ins
    ]
    rows = [
        [
            shown_name(one.method),
            str(one.seed),
            *(str(count) for count in week.dropped.values()),
            _percent(sum(week.dropped.values()), week.asked),
            _decimals(week.swing, 2),
            _decimals(week.time_rho, 3),
            _decimals(week.energy_rho, 3),
            str(week.pairs),
            Origin.EMULATED,
        ]
        for one, week in found
    ]
    by_hour = (
        f"Hours of the users' day, {shown_name(loaded[0].method)} seed {loaded[0].seed}; means of eligible."
    )
    tables = [Table(DROPS, rows, DROPS_NOTE), Table(HOURS, hours, by_hour)]
    course = course_of(loaded[0].result)
    calm = "" if any(counts.any() for counts in course.dropped.values()) else " Nobody dropped out."
    text = f"Figures: {shown_name(loaded[0].method)}, seed {loaded[0].seed}; nights are shaded.{calm}"
    return Section("Over the day", text, charts=course_charts(course), folds=[Fold(EACH_RUN, tables=tables)])


def _percent(part: int | None, whole: int) -> str:
    return "unknown" if part is None or not whole else f"{100 * part / whole:.1f}"


def _decimals(value: float, digits: int) -> str:
    return "unknown" if math.isnan(value) else f"{value:.{digits}f}"


def _count(devices: int | None) -> str:
    return "unknown" if devices is None else f"{devices:,}"


def _scenario(path: Path, scenario: Scenario) -> Section:
    written = path / "config" / "scenario.toml"
    files = [("scenario.toml, as written", text_of(written))] if written.is_file() else []
    return Section("Scenario", files=[*files, ("with all defaults", scenario.to_json())], folded=True)


def _provenance(summary: VariantSummary) -> Section:
    """What the costs, people, data and training rest on."""
    rows = [
        [name.replace("_", " "), _fact(value)]
        for name, value in summary.facts.items()
        if name not in EACH and value not in (None, [], {})
    ]
    text = (
        "Every number above is emulated. What seconds and joules rest on is called cost origin, what "
        f"accuracies rest on trainer. Where seeds differ, this is seed {summary.facts['seed']}."
    )
    return Section("Provenance", text, tables=[Table(["what", "it rests on"], rows)], folded=True)


def _fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_fact(inner)}" for name, inner in value.items())
    return value if isinstance(value, str) else json.dumps(value)


def _facts(run: RunRecord, loaded: Sequence[FinishedRun]) -> dict[str, str]:
    return {
        "run": run.run_id,
        "command": " ".join(run.command),
        "status": run.status.value,
        "emulations": ", ".join(f"{shown_name(one.method)} seed {one.seed}" for one in loaded),
        **run.host,
    }
