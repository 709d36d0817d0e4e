"""``joulefleet bench run``: jobs on devices, with a dry run before and a resume after."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Command, Output, columns, inventory_option, root_option
from harness.cli.own_code import code_option

if TYPE_CHECKING:
    from harness.bench.estimate import Estimate, JobEstimate
    from harness.bench_run.run import BenchFiles, BenchResult
    from harness.bench_run.sessions import NextSession

_file = click.Path(path_type=Path, dir_okay=False)
_folder = click.Path(path_type=Path, file_okay=False)


@click.command("run", cls=Command)
@click.argument("plan", type=_file)
@inventory_option()
@code_option
@root_option("Where a new run goes.")
@click.option("--dry-run", is_flag=True, help="List jobs, time, energy and disk; touch nothing.")
@click.option("--resume", type=_folder, help="Continue this run: finished jobs are kept.")
@click.option(
    "--only",
    multiple=True,
    metavar="JOB",
    help="Only this job: its number, its name, or a pattern such as '*_phone_*'. May be repeated.",
)
@click.option("--wait", is_flag=True,
              help="Wait for the next session instead of ending, and for meters in use.")  # fmt: skip
@click.option("--now", is_flag=True, help="Begin the next session although it is too early; it is marked so.")
@click.option("--profiles", type=_folder, multiple=True, help="Profiles that the dry run may rest on.")
def run(
    plan: Path,
    inventory: Path,
    code: tuple[Path, ...],
    root: Path,
    dry_run: bool,
    resume: Path | None,
    only: tuple[str, ...],
    wait: bool,
    now: bool,
    profiles: tuple[Path, ...],
) -> Output:
    """Measure what a PLAN asks for on the devices of an inventory."""
    from harness.bench_run.run import read_bench_files

    files = read_bench_files(plan, inventory, code)
    if dry_run:
        return _dry_run(files, root, only, profiles)
    return _run(files, root, resume, only, wait=wait, now=now)


def _dry_run(files: BenchFiles, root: Path, only: tuple[str, ...], profiles: tuple[Path, ...]) -> Output:
    from harness.bench.estimate import estimate, find_profiles
    from harness.bench.matrix import choose

    places = profiles or tuple(sorted(root.glob("[!.]*/profiles")))
    cost = estimate(files.plan, files.inventory, choose(files.jobs, only), find_profiles(places))
    sent = sorted({job.cell.backend for job in files.jobs}) if files.own_code else []
    ships = [
        f"sends {path} to the devices, where torch runs it"
        if "torch" in sent
        else f"runs {path} here only: {' and '.join(sent)} gets the exported step"
        for path in files.own_code
    ]
    return Output({**asdict(cost), "own_code": ships}, [*_estimate_lines(cost), *ships])


def _run(
    files: BenchFiles, root: Path, resume: Path | None, only: tuple[str, ...], *, wait: bool, now: bool
) -> Output:
    from harness.bench_run.run import Pace, run_bench
    from harness.cli.bench.live import live_view, say
    from harness.cli.progress import stop_on_signals
    from harness.outputs import OUTPUTS

    def announce(coming: NextSession, path: Path) -> None:
        say(f"waiting for {coming.text}; Ctrl-C ends this, then go on with: {files.command(path)}")

    pace = Pace(wait, now, announce)
    with stop_on_signals() as stop:
        view = live_view(files, stop)
        done = run_bench(
            files, root, resume=resume, only=only, pace=pace, stop=stop, view=view, outputs=OUTPUTS
        )
    return Output(_data(files, done), _lines(files, done))


def _data(files: BenchFiles, done: BenchResult) -> dict[str, Any]:
    outcomes = done.outcomes
    return {
        "run": str(done.path),
        "jobs": done.jobs,
        "finished": sorted(outcomes.finished),
        "not_needed": sorted(outcomes.not_needed),
        "left": done.left,
        "next_session": None
        if done.coming is None
        else {"session": done.coming.number, "from_utc": done.coming.from_utc.isoformat()},
        "resume": files.command(done.path) if done.left else None,
        "profiles": [stored.place for stored in done.built.profiles],
        "profile_problems": list(done.built.problems),
    }


def _lines(files: BenchFiles, done: BenchResult) -> list[str]:
    outcomes = done.outcomes
    lines = [f"{len(outcomes.finished)} of {done.jobs} jobs finished: {done.path}"]
    if outcomes.not_needed:
        count = len(outcomes.not_needed)
        lines.append(f"{count} repetitions were not needed: the intervals are narrow enough")
    lines.append(f"page: {done.path / 'report.html'}")
    lines += [f"profile: {stored.place}" for stored in done.built.profiles]
    lines += [f"no profile: {problem}" for problem in done.built.problems]
    if done.built.problems:
        lines.append(f"to build them again: `joulefleet profile build {done.path}`")
    if done.coming is not None:
        lines.append(f"next is {done.coming.text}; continue with: {files.command(done.path)}")
    elif done.left:
        lines.append(f"the others: {files.command(done.path)}")
    return lines


def _estimate_lines(cost: Estimate) -> list[str]:
    """Jobs one by one, then all together, then what it rests on."""
    from harness.cli.bench.live import clock

    table = columns(("job", "time", "energy", "disk"), map(_estimate_row, cost.jobs))
    least = "at least " if cost.is_lower_bound else ""
    optional = sum(job.optional for job in cost.jobs)
    energy = "energy unknown" if cost.energy_j is None else f"{least}{cost.energy_j:.3g} J"
    together = (
        f"{len(cost.jobs) - optional} jobs: {least}{clock(cost.duration_s)} beside connecting and deploying, "
        f"{energy}, {least}{cost.disk_bytes / 1e6:.1f} MB"
    )
    more = [f"and up to {optional} more repetitions, {clock(cost.most_s)} in all"] if optional else []
    bases = [f"rests on {basis}" for basis in dict.fromkeys(job.basis for job in cost.jobs)]
    return [table, together, *more, *_schedule_lines(cost), *bases, "nothing was touched"]


def _schedule_lines(cost: Estimate) -> list[str]:
    """When sessions may begin; the run ends after each of them, or waits with ``--wait``."""
    from harness.cli.bench.live import clock
    from harness.profiles.sessions import SESSION_GAP

    least = "at least " if cost.is_lower_bound else ""
    lines = [
        f"session {s.session}: {s.jobs} jobs, {least}{clock(s.duration_s)}, "
        + ("at once" if s.begins_s == 0 else f"{clock(s.begins_s)} after the beginning or later")
        for s in cost.sessions
    ]
    gaps = [later.begins_s - s.begins_s - s.duration_s for s, later in pairwise(cost.sessions)]
    if gaps and round(min(gaps)) < SESSION_GAP.total_seconds():
        lines.append('sessions this close show how set-ups differ, not how days do: apart = "12 h" is usual')
    return lines


def _estimate_row(job: JobEstimate) -> list[str]:
    from harness.cli.bench.live import clock

    least = "" if job.training_s is not None else "> "
    return [
        job.job + (" (if needed)" if job.optional else ""),
        least + clock(job.duration_s),
        "?" if job.energy_j is None else f"{job.energy_j:.3g} J",
        "?" if job.disk_bytes is None else f"{least}{job.disk_bytes / 1e6:.1f} MB",
    ]
