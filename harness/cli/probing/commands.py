"""``joulefleet probing``: what stopping after the first epoch saves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Group, Output, inventory_option, root_option
from harness.cli.probing.fidelity import fidelity
from harness.cli.terminal import echo
from joulefleet.errors import EXIT_FAILED

if TYPE_CHECKING:
    from harness.probing.run import ProbingFiles
    from power import DeviceProfile

REFERENCE = "reference"
PAPER_CHOSEN = (10,)
PAPER_CANDIDATES = (15, 20, 30)
"""From what the paper's energy figure implies (1.46 K) to the emulator's default (3 K)."""

FOR_PREDICTIONS = ("task", "backend", "candidates", "chosen", "epochs", "choose", "seed")
FOR_PLANS = ("inventory", "resume", "dry_run")
"""Options, by what they apply to."""


def _counts(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """``15,20,30`` as numbers."""
    if value is None:
        return None
    try:
        numbers = tuple(dict.fromkeys(int(part) for part in value.split(",")))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of numbers such as 15,20,30") from None
    if min(numbers) < 1:
        raise click.BadParameter(f"{value!r}: at least one device has to take part")
    return numbers


@click.group("probing", cls=Group)
def probing() -> None:
    """What stopping after the first epoch saves, and how well rounds are predicted."""


probing.add_command(fidelity)


@probing.command("validate")
@root_option()
@click.argument("target")
@click.option("--task", default="mnist-lenet5", show_default=True, help="Which of the profiles to use.")
@click.option("--backend", help="Which backend's profiles to use, if a run has several.")
@click.option("--candidates", callback=_counts, help="M: who is probed, e.g. 15,20,30; all devices of a run.")
@click.option("--chosen", callback=_counts, help="K: who goes on, e.g. 5,10; half of a run's devices.")
@click.option(
    "--epochs", type=click.IntRange(1), help="Local epochs, the probe included; as in the profiles."
)
@click.option(
    "--choose", type=click.Choice(["random", "fastest", "cheapest"]), default="random", show_default=True,
    help="Who goes on after the probe.",
)  # fmt: skip
@click.option(
    "--energy", type=click.Choice(["marginal", "net", "gross"]), default="marginal", show_default=True,
    help="Which energy of the profiles to count.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the rounds drawn.")
@inventory_option("For a plan: file that lists the devices.")
@click.option(
    "--resume", type=click.Path(path_type=Path, file_okay=False),
    help="For a plan: continue this run; finished rounds are kept.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="For a plan: list the rounds and touch nothing.")
@click.option(
    "--profiles", "source", help="For a plan or a probing run: predict from this run's profiles, not its own."
)
def validate(root: Path, target: str, **given: Any) -> Output:
    """Count a round with and without early exit: on the bench, or from profiles.

    TARGET is a probing plan (a .toml file), whose rounds are run both ways on the bench; a probing run, which
    is computed again from its captures; another run, from whose profiles the round is predicted; or
    'reference', for the reference fleet.

    In the vanilla round every candidate trains all epochs, then the server chooses. In the probing round
    every candidate trains one epoch and reports, the chosen go on, the others stop.
    """
    from harness.rounds.record import PROBING
    from joulefleet.runstore import find_run
    from joulefleet.runstore.run import read_run

    ctx = click.get_current_context()
    if target.endswith(".toml"):
        _refuse(ctx, FOR_PREDICTIONS, "the plan says it")
        return _run_plan(Path(target), root, given)
    run = None if target == REFERENCE else find_run(root, target)
    _refuse(ctx, FOR_PLANS, "only a plan is run")
    if run is not None and read_run(run).kind == PROBING:
        _refuse(ctx, FOR_PREDICTIONS, "the run's plan says it")
        return _show_run(run, root, given)
    _refuse(ctx, ("source",), "only what was measured is compared with profiles")
    return _predict(root, target, **given)


def _refuse(ctx: click.Context, names: tuple[str, ...], why: str) -> None:
    """An option that has no meaning here is a mistake, not to be passed over."""
    for name in names:
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = next(p.opts[0] for p in ctx.command.params if p.name == name)
            raise click.UsageError(f"{option} does not apply to this target: {why}", ctx)


def _run_plan(plan: Path, root: Path, given: dict[str, Any]) -> Output:
    """Run a plan, or only say what it would run."""
    from harness.cli.bench.live import shown
    from harness.outputs import OUTPUTS
    from harness.probing.run import read_probing_files, run_probing

    files = read_probing_files(plan, given["inventory"])
    if given["dry_run"]:
        return _dry_run(files)
    with shown(files, files.plan.local_epochs, len(files.rounds)) as (stop, listener, board):
        outcome = run_probing(
            files,
            root,
            resume=given["resume"],
            stop=stop,
            listener=listener,
            board=board,
            outputs=OUTPUTS,
        )
    if outcome.failed:
        echo(f"to try failed rounds again: {files.command(outcome.path)}", err=True)
    return _show_run(outcome.path, root, given)


def _dry_run(files: ProbingFiles) -> Output:
    rounds = [
        {
            "round": planned.name,
            "repetition": planned.repetition,
            "candidates": list(planned.candidates),
            "k": planned.chosen,
        }
        for planned in files.rounds
    ]
    lines = [f"{planned.name}: {', '.join(planned.candidates)}" for planned in files.rounds]
    return Output({"rounds": rounds}, [*lines, f"{len(rounds)} rounds; nothing was touched"])


def _show_run(run: Path, root: Path, given: dict[str, Any]) -> Output:
    """What a probing run says, computed from its captures."""
    from harness.cli.probing.view import validation_data, validation_lines
    from harness.probing.validation import OWN_PROFILES, validate_run
    from harness.profiles.library import run_profiles
    from joulefleet.runstore import find_run

    source = given["source"]
    profiles = None
    if source is not None:
        profiles = [stored.profile for stored in run_profiles(find_run(root, source))]
    found = validate_run(run, energy=given["energy"], profiles=profiles, profiles_from=source or OWN_PROFILES)
    return Output(validation_data(found), validation_lines(found), EXIT_FAILED if found.failed else 0)


def _predict(root: Path, target: str, task: str, candidates: Any, chosen: Any, **rest: Any) -> Output:
    from harness.cli.probing.view import prediction_data, prediction_lines
    from harness.probing.predict import predict_savings

    profiles = _profiles(target, root, task, rest["backend"])
    devices = len(profiles)
    whole_fleet = target == REFERENCE
    found = predict_savings(
        profiles,
        candidates=candidates or (PAPER_CANDIDATES if whole_fleet else (devices,)),
        chosen=chosen or (PAPER_CHOSEN if whole_fleet else ((devices + 1) // 2,)),
        local_epochs=rest["epochs"],
        rule=rest["choose"],
        energy=rest["energy"],
        distinct=not whole_fleet,
        seed=rest["seed"],
    )
    return Output(prediction_data(found, task), prediction_lines(found, task))


def _profiles(target: str, root: Path, task: str, backend: str | None) -> list[DeviceProfile]:
    from harness.profiles.library import run_profiles
    from joulefleet.errors import ConfigError
    from joulefleet.runstore import find_run
    from power.reference import reference_fleet

    if target == REFERENCE:
        return list(reference_fleet(task))
    run = find_run(root, target)
    stored = [found.profile for found in run_profiles(run)]
    if not stored:
        raise ConfigError(
            f"{run}: no profiles in it", hint=f"`joulefleet profile build {run.name}` makes them"
        )
    matching = [p for p in stored if p.task == task and backend in (None, p.backend)]
    if not matching:
        known = ", ".join(sorted({f"{p.task} with {p.backend}" for p in stored}))
        raise ConfigError(
            f"{run}: no profile of {task} with {backend or 'any backend'}", hint=f"it has {known}"
        )
    return matching
