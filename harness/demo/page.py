"""The page of the demo: three acts, and how to go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from device_agents.protocol import Phase
from emulator import Accounting
from emulator.experiments import PAPER_SAVING, summarise
from harness.demo.local_bench import DEVICES
from harness.demo.outcome import LOOK, NEXT, DemoResult, commands
from harness.probing.formula import COUNTED
from harness.report.bench.charts import job_folds
from harness.report.bench.profile_tables import cost_section, profile_answers, profile_section
from harness.report.emulations.answers import said, variant_answers
from harness.report.emulations.experiment_page import variant_curves, variant_tables
from harness.report.looks import method_looks
from harness.report.page import Cell, Number, Page, Section, Table
from harness.results.stored_run import StoredRun
from harness.results.tables import JobCapture
from joulefleet.interval import Interval
from joulefleet.provenance import Origin, weakest
from joulefleet.runstore import RunRecord
from power import DeviceProfile

TRACE_POINTS = 40_000
"""Of all power traces together: about a megabyte. The bench run's own page has more."""

OPENED = 2

BUSY_MACHINE = 0.8
"""A device alone on its processor has nearly all of it; less than this share is worth a word."""


def demo_page(result: DemoResult, bench: StoredRun, run: RunRecord) -> Page:
    """Put the three acts on one page."""
    profiles = [stored.profile for stored in result.profiles]
    return Page(
        title="joulefleet demo",
        lead=(
            "The whole tool on one machine without hardware: processes play the devices and really train; "
            "emulated Monsoons read the power that their processor time stands for. Nothing here is about a "
            "real device, and every number says so. With hardware the same commands measure."
        ),
        answers=_answers(result, profiles),
        sections=[
            replace(cost_section(profiles), title="Act 1: what it costs"),
            _bench(bench, profiles),
            replace(profile_section(profiles), title="Act 1: every phase, load curves, notes"),
            *_replay(result),
            _probing(result),
            _next(result),
        ],
        facts=_facts(result, bench, run),
    )


def _answers(result: DemoResult, profiles: Sequence[DeviceProfile]) -> list[str]:
    """One for each act."""
    (summary,) = summarise(result.results)
    honest = result.replayed.savings[Accounting.HONEST]
    time, energy = said(honest.time.times(100), "%"), said(honest.energy.times(100), "%")
    saved = (
        f"Probing: stopping most candidates after the first epoch saves {time} of the time and {energy} of "
        "the energy of rounds in which all train on, every probe counted."
    )
    first, *_ = profile_answers(profiles)
    return [f"Bench: {first}", f"Replay: {variant_answers(summary)[0]}", saved]


def _bench(bench: StoredRun, profiles: Sequence[DeviceProfile]) -> Section:
    watts = " and ".join(
        f"{device.idle_w} W idle plus {device.busy_w} W for a busy processor ({device.name})"
        for device in DEVICES
    )
    text = (
        "Two devices, reached by the local transport (no SSH server needed), train LeNet-5 with torch and "
        "with onnxruntime, on random samples of MNIST's shape. A round is a probe epoch, a report, a wait "
        "for the server's decision, and the other epochs. Each device's meter speaks the bytes of a Monsoon "
        f"LVPM over a pseudo-terminal; what it reads is set: {watts}."
    )
    jobs = sorted(bench.captures, key=_shown_first)
    usable = sum(epoch.usable for job in jobs for epoch in job.cut.epochs)
    samples = sum(job.capture.recording.record.n_samples for job in jobs)
    counts = f"{len(jobs)} rounds were measured: {usable} epochs with an energy, {samples:,} power samples."
    return Section(
        "Act 1: bench",
        f"{text} {counts}{_contention(profiles)}",
        numbers=[(f"An epoch on {p.device} with {p.backend}", _energy(p)) for p in profiles],
        folds=job_folds(jobs, page_points=TRACE_POINTS, opened=OPENED),
    )


def _contention(profiles: Sequence[DeviceProfile]) -> str:
    """What a reader has to know if other work took the devices' processors away."""
    busy_w = {device.name: device.busy_w for device in DEVICES}
    shares = [
        profile.epoch.energy_j("net").mean / profile.epoch.duration_s.mean / busy_w[profile.device]
        for profile in profiles
    ]
    if min(shares) >= BUSY_MACHINE:
        return ""
    return (
        f" This machine was busy with other things: during an epoch a device had {min(shares):.0%} to "
        f"{max(shares):.0%} of its processor, so durations scatter and say little about the work."
    )


def _energy(profile: DeviceProfile) -> Number:
    energy = profile.epoch.gross_j
    return Number(energy.mean, "J", profile.origin, energy.half_width_95)


def _shown_first(job: JobCapture) -> tuple[bool, str, str]:
    """One round of each backend without load, then the others by name."""
    record = job.capture.record
    return (record.background.load > 0, record.device.name, record.backend)


def _replay(result: DemoResult) -> list[Section]:
    (summary,) = summarise(result.results)
    scenario = summary.variant.scenario
    fleet, task, rules = scenario.fleet, scenario.task, scenario.protocol
    text = (
        f"{fleet.devices} virtual devices, each one of the profiles above scaled to its "
        f"{task.options['samples_per_client']} samples and to a speed of its own (log-normal, "
        f"{fleet.speed_spread:g}), beside whose training generated people use their apps. The same LeNet-5 "
        f"is really trained, on handwritten digits enlarged to its input. {rules.k} devices train in a "
        f"round; FedRank probes {rules.candidates} to choose them. "
        + " ".join(f"Note: {warning}." for warning in result.results.warnings)
    )
    looks = method_looks(summary.runs)
    first, rest = variant_tables(summary, looks, "Act 2: replay")
    return [replace(first, text=text), replace(variant_curves(summary, looks), title="Act 2: curves"), rest]


def _probing(result: DemoResult) -> Section:
    cell, replayed = result.predicted.cells[0], result.replayed
    origin = weakest([result.predicted.origin, replayed.origin])
    rows: list[list[Cell]] = [
        [
            accounting.value.replace("_", " "),
            _percent(cell.savings[accounting].time_saved),
            _percent(cell.savings[accounting].energy_saved),
            _percent(replayed.savings[accounting].time),
            _percent(replayed.savings[accounting].energy),
            origin,
            COUNTED[accounting],
        ]
        for accounting in Accounting
    ]
    said = (f"{100 * share:.1f}" for share in (PAPER_SAVING.time_saved, PAPER_SAVING.energy_saved))
    rows.append(["the paper", *said, "", "", Origin.LITERATURE, "not stated, and neither is M"])
    text = (
        f"Without early exit (vanilla) all M = {cell.candidates} candidates train all epochs and the server "
        f"keeps K = {cell.chosen}. With probing all train one epoch, K go on. Formula: the paper's, from the "
        "profiles of act 1, each with its own samples an epoch, on idle devices, K at random. Emulated "
        "rounds: those of FedRank in act 2, with the speeds and apps of its fleet and FedRank's choice. What "
        "a stopped device would have taken is its own first epoch times the ratio of later to first epochs "
        "in the same runs."
        + (f" {replayed.left_out} rounds with drop-outs are left out." if replayed.left_out else "")
    )
    headers = [
        *("accounting", "formula: time saved %", "energy saved %"),
        *("emulated rounds: time saved %", "energy saved %", "origin", "what is counted"),
    ]
    caption = f"Means with 95 % intervals: of the profiles' errors; over seeds. {PAPER_SAVING.remark}."
    vanilla = (
        ("formula", cell.vanilla_s.mean, cell.vanilla_j.mean, result.predicted.origin),
        ("emulated rounds", replayed.vanilla_s.mean, replayed.vanilla_j.mean, replayed.origin),
        ("the paper", PAPER_SAVING.vanilla_s, PAPER_SAVING.vanilla_j, Origin.LITERATURE),
    )
    numbers = [
        (f"Vanilla round, {source}: {what}", Number(value, unit, its_origin))
        for source, seconds, joules, its_origin in vanilla
        for what, value, unit in (("time", seconds, "s"), ("energy", joules, "J"))
    ]
    return Section("Act 3: what probing saves", text, numbers, tables=[Table(headers, rows, caption)])


def _percent(share: Interval) -> str:
    return share.text(100)


def _next(result: DemoResult) -> Section:
    return Section(
        "Where to go from here",
        "The demo did what these commands do.",
        tables=[
            Table(["look closer at", "command"], commands(result, LOOK)),
            Table(["with real hardware", "command"], commands(result, NEXT)),
        ],
    )


def _facts(result: DemoResult, bench: StoredRun, run: RunRecord) -> dict[str, str]:
    kinds = {job.capture.recording.record.info.kind for job in bench.captures}
    sync = [job.capture.record.clock.sync_uncertainty_s for job in bench.captures]
    lost = sum(job.capture.recording.record.dropped or 0 for job in bench.captures)
    phases = sum(phase == Phase.EPOCH.value for job in bench.captures for phase, *_ in job.phases)
    return {
        "demo": run.run_id,
        "bench run": str(result.bench),
        "replay": str(result.replay),
        "instruments": f"{', '.join(sorted(kinds))}, emulated at the byte level; {lost} samples lost",
        "clocks": f"standard uncertainty at most {max(sync) * 1e3:.3g} ms; {phases} epochs",
        "failed attempts": str(len(bench.failed_attempts)),
        "seconds by act": ", ".join(f"{name} {took_s:.0f}" for name, took_s in result.took_s.items()),
        **run.host,
    }
