"""``joulefleet experiment``: the paper's table and figures, one command each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.emulate import Seeds, check_engine, engine_options, ray_cluster
from harness.cli.frame import Document, Group, Output, root_option
from harness.cli.own_code import code_option, given
from harness.cli.terminal import echo
from joulefleet.printable import printable

if TYPE_CHECKING:
    from emulator import RoundOutcome
    from emulator.experiments import ExperimentPlan, PlanEntry
    from emulator.experiments.effort import Effort
    from emulator.runs import PlannedEmulation
    from emulator.scale import Cluster
    from harness.demo.run import Advance
    from joulefleet.runstore import Run

PRESETS = ("smoke", "laptop", "paper")
ROOT = Path("experiments")


@click.group(cls=Group)
def experiment() -> None:
    """Repeat the paper's table and figures."""


@experiment.command("list")
def list_experiments() -> Output:
    """What can be run, in which sizes, and how long each takes."""
    from emulator.experiments import EXPERIMENTS, Preset, plan_experiment
    from emulator.experiments.effort import MEASURED, effort_of

    data: list[dict[str, Any]] = []
    for name, entry in EXPERIMENTS.entries().items():
        plans = {preset: plan_experiment(name, Preset(preset)) for preset in PRESETS}
        sizes = {preset: _size(plan, effort_of(plan)) for preset, plan in plans.items()}
        data.append({"name": name, "summary": entry.summary, "presets": sizes})

    lines = []
    for one in data:
        lines.append(f"{one['name']:<15} {one['summary']}")
        lines += [f"{'':<15} {preset:<7} {_size_text(size)}" for preset, size in one["presets"].items()]
    lines += [f"times   {MEASURED}", "next    `joulefleet experiment run NAME --preset smoke`"]
    return Output({"experiments": data, "times": MEASURED}, lines)


@experiment.command("run")
@click.argument("name")
@click.option("--preset", type=click.Choice(PRESETS), default="smoke", show_default=True, help="How large.")
@click.option("--seeds", type=Seeds(), metavar="0-9", help="Instead of the preset's own, for every method.")
@click.option("--variant", "variants", multiple=True, help="Only this one of its scenarios; may be repeated.")
@click.option(
    "--resume", "resumed", is_flag=True, help="Continue the newest unfinished run of the same plan."
)
@click.option("--reuse", multiple=True, metavar="RUN",
              help="Take equal scenarios with equal seeds from this run; may be repeated.")  # fmt: skip
@click.option("--accept-other-software", is_flag=True,
              help="Resume or reuse although code or packages have changed; the tables say so.")  # fmt: skip
@code_option
@engine_options
@click.option("--dry-run", is_flag=True, help="Show what would be run and how long it takes.")
@root_option("Where the run goes.", ROOT)
def run_experiment(
    name: str,
    preset: str,
    seeds: tuple[int, ...] | None,
    variants: tuple[str, ...],
    resumed: bool,
    reuse: tuple[str, ...],
    accept_other_software: bool,
    code: tuple[Path, ...],
    engine: str,
    ray_address: str | None,
    dry_run: bool,
    root: Path,
) -> Output:
    """Run experiment NAME (`joulefleet experiment list`) and write its tables and page.

    A task given with --code takes the place of every scenario's, and selectors are played besides.
    """
    from emulator.experiments import Preset, check_donors, plan_experiment, runner, take_over
    from joulefleet.runstore import find_run

    check_engine(engine, ray_address)
    plan = plan_experiment(name, Preset(preset), seeds=seeds, only=variants, given=given(code))
    if dry_run:
        runner.check_methods(plan)
        return _dry_run(plan)
    donors = [find_run(root, reference) for reference in reuse]
    accept = {"accept_other_software": accept_other_software}
    check_donors(donors, **accept)
    with (
        ray_cluster(engine, ray_address) as cluster,
        runner.resume(root, plan, **accept) if resumed else runner.start(root, plan) as run,
    ):
        if donors:
            taken = take_over(run, plan, donors, **accept)
            count = f"{taken.count} of {len(plan.planned)}"
            echo(f"{count} emulations taken from other experiments", err=True)
            for damaged in taken.damaged:
                echo(f"not taken, and played anew: {damaged}", err=True)
        _play(run, plan, cluster)
    return _shown(run.path, partial=False)


@experiment.command("publish")
@click.argument("run")
@click.argument("folder", type=click.Path(path_type=Path))
@root_option(folder=ROOT)
def publish(run: str, folder: Path, root: Path) -> Output:
    """Write what all tables of RUN can be computed from again into a new FOLDER: every round, compressed."""
    from emulator.experiments import load_experiment, publish_experiment
    from joulefleet.runstore import find_run

    results = load_experiment(find_run(root, run), partial=True)
    publish_experiment(results, folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    shown = f"published  {len(results.runs)} runs, {size:,} bytes in {printable(folder)}"
    again = f"next       `joulefleet experiment table --from {printable(folder)}`"
    return Output({"folder": str(folder), "runs": len(results.runs), "bytes": size}, [shown, again])


@experiment.command("table")
@click.argument("run", required=False)
@click.option("--from", "published", type=click.Path(path_type=Path, exists=True, file_okay=False),
              help="Compute them from published data instead (docs/results/data).")  # fmt: skip
@click.option("--partial", is_flag=True, help="Without runs that are missing; the tables say so.")
@click.option("--format", "form", type=click.Choice(["text", "markdown", "csv"]), default="text",
              show_default=True)  # fmt: skip
@root_option(folder=ROOT)
def table(run: str | None, published: Path | None, partial: bool, form: str, root: Path) -> Output:
    """Show the tables of RUN, and write them and its page anew."""
    from joulefleet.runstore import find_run

    if published is not None and run is None:
        return _recomputed(published, form)
    if published is not None or run is None:
        raise click.UsageError("Give either RUN or --from FOLDER.")
    return _shown(find_run(root, run), partial=partial, form=form)


def _play(run: Run, plan: ExperimentPlan, cluster: Cluster | None) -> None:
    from emulator.experiments.effort import effort_of
    from emulator.runs import play, stoppable
    from harness.cli.progress import progress

    echo(f"{_size_text(_size(plan, effort_of(plan)))} on two idle cores", err=True)
    echo(f"into {run.path}; should it stop, the same command with --resume goes on", err=True)
    rounds = {one.folder: plan.scenario_of(one).protocol.rounds for one in plan.planned}
    before, total = {}, 0
    for folder, count in rounds.items():
        before[folder], total = total, total + count
    again = f"it is in {run.path}; the same command with --resume goes on"
    with stoppable(again), progress(plan.name, total) as advance:

        def on_round(planned: PlanEntry, outcome: RoundOutcome) -> None:
            advance(before[planned.folder] + outcome.round, f"{planned.folder} round {outcome.round}")

        if cluster is None:
            play(run, plan, on_round)
        else:
            _play_on_ray(run, plan, cluster, rounds, advance)


def _play_on_ray(
    run: Run, plan: ExperimentPlan, cluster: Cluster, rounds: dict[str, int], advance: Advance
) -> None:
    from emulator.scale import play_sweep, unfinished

    left = {one.folder for one in unfinished(run, plan)}
    played = sum(count for folder, count in rounds.items() if folder not in left)

    def on_done(planned: PlannedEmulation, done: int, count: int) -> None:
        nonlocal played
        played += rounds[planned.folder]
        advance(played, f"{planned.folder} finished, {done} of {count}; {cluster.describe()}")

    play_sweep([(run, plan)], on_done)


def _recomputed(folder: Path, form: str) -> Output:
    from emulator.experiments import as_csv, as_data, load_published
    from emulator.experiments.render import as_markdown, as_text

    results = load_published(folder)
    text = {"text": as_text, "markdown": as_markdown, "csv": as_csv}[form](results)
    data = {"path": str(folder), "runs": len(results.runs), "numbers": as_data(results)}
    return Output(data, Document(text), warnings=results.warnings if form == "csv" else ())


def _shown(path: Path, *, partial: bool, form: str = "text") -> Output:
    from emulator.experiments import as_csv, as_data
    from emulator.experiments.render import as_markdown, as_text
    from harness.outputs import write_experiment
    from harness.report.page import REPORT_FILE

    results = write_experiment(path, partial=partial)
    text = {"text": as_text, "markdown": as_markdown, "csv": as_csv}[form](results)
    page = path / REPORT_FILE
    data = {
        "path": str(path),
        "report": str(page),
        "warnings": list(results.warnings),
        "missing": [one.folder for one in results.missing],
        "runs": len(results.runs),
        "numbers": as_data(results),
    }
    if form == "text":
        text = f"{text}\n\nrun     {printable(path)}\nreport  {printable(page)}"
    return Output(data, Document(text), warnings=results.warnings if form == "csv" else ())


def _dry_run(plan: ExperimentPlan) -> Output:
    from emulator.experiments.effort import MEASURED, effort_of

    effort = effort_of(plan)
    size = _size(plan, effort)
    variants = [
        {
            "name": variant.name,
            "title": variant.title,
            "reduced": list(variant.reductions),
            "methods": list(dict.fromkeys(o.method for o in plan.planned if o.variant == variant.name)),
        }
        for variant in plan.variants
    ]
    lines = []
    for one in variants:
        lines.append(f"{one['name']:<28} {', '.join(one['methods'])}")
        lines += [f"{'':<28} unlike the paper: {reduction}" for reduction in one["reduced"]]
    lines += [f"would run  {_size_text(size)}", f"times      {MEASURED}"]
    return Output({"experiment": plan.name, "variants": variants, **size}, lines)


def _size(plan: ExperimentPlan, effort: Effort) -> dict[str, Any]:
    return {
        "variants": len(plan.variants),
        "runs": effort.runs,
        "client_epochs": effort.client_epochs,
        "two_cores_s": effort.two_cores_s,
    }


def _size_text(size: dict[str, Any]) -> str:
    seconds = size["two_cores_s"]
    if seconds is None:
        took = "time not measured"
    elif seconds < 120:
        took = f"about {max(1, round(seconds / 10)) * 10} s"
    else:
        took = f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
    count = f"{size['runs']} runs on {size['variants']} scenario{'' if size['variants'] == 1 else 's'}"
    return f"{count}, {size['client_epochs']:,} client-epochs, {took}"
