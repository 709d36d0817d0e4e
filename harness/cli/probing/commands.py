"""``joulefleet probing``: what stopping after the first epoch saves."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Group, Output, inventory_option, root_option
from harness.cli.probing.fidelity import fidelity

if TYPE_CHECKING:
    from rich.console import Console

    from harness.probing.predict import Prediction
    from joulefleet.interval import Interval
    from power import DeviceProfile

REFERENCE = "reference"
PAPER_CHOSEN = (10,)
PAPER_CANDIDATES = (15, 20, 30)
"""From what the paper's energy figure implies (1.46 K) to the emulator's default (3 K)."""

FOR_PREDICTIONS = ("task", "backend", "candidates", "chosen", "epochs", "choose", "seed")
FOR_PLANS = ("inventory", "resume", "dry_run")
"""Options, by what they apply to."""

WAITING = "wait: for the slowest candidate before the server's choice, at awake power; in no other number"


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
    help="For a plan: take this run up again; finished rounds are kept.",
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
    from harness.cli.probing import bench as probing_bench
    from harness.rounds.record import PROBING
    from joulefleet.runstore import find_run
    from joulefleet.runstore.run import read_run

    ctx = click.get_current_context()
    if target.endswith(".toml"):
        _refuse(ctx, FOR_PREDICTIONS, "the plan says it")
        return probing_bench.run_plan(Path(target), root, given)
    run = None if target == REFERENCE else find_run(root, target)
    _refuse(ctx, FOR_PLANS, "only a plan is run")
    if run is not None and read_run(run).kind == PROBING:
        _refuse(ctx, FOR_PREDICTIONS, "the run's plan says it")
        return probing_bench.show_run(run, root, given)
    _refuse(ctx, ("source",), "only what was measured is compared with profiles")
    return _predict(root, target, **given)


def _refuse(ctx: click.Context, names: tuple[str, ...], why: str) -> None:
    """An option that has no meaning here is a mistake, not to be passed over."""
    for name in names:
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = next(p.opts[0] for p in ctx.command.params if p.name == name)
            raise click.UsageError(f"{option} does not apply to this target: {why}", ctx)


def _predict(root: Path, target: str, task: str, candidates: Any, chosen: Any, **rest: Any) -> Output:
    from harness.probing.predict import Question, predict

    profiles = _profiles(target, root, task, rest["backend"])
    devices = len(profiles)
    whole_fleet = target == REFERENCE
    question = Question(
        candidates=candidates or (PAPER_CANDIDATES if whole_fleet else (devices,)),
        chosen=chosen or (PAPER_CHOSEN if whole_fleet else ((devices + 1) // 2,)),
        local_epochs=rest["epochs"],
        rule=rest["choose"],
        energy=rest["energy"],
        distinct=not whole_fleet,
        seed=rest["seed"],
    )
    found = predict(profiles, question)
    return Output(_data(found, task), lambda console: _render(found, task, console))


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


def _data(found: Prediction, task: str) -> dict[str, Any]:
    from emulator.experiments import PAPER_SAVING
    from harness.probing.formula import COUNTED

    return {
        "task": task,
        "origin": found.origin.value,
        "profiles": found.profiles,
        "local_epochs": found.local_epochs,
        "energy": found.energy,
        "choose": found.rule,
        "counted": {str(name): text for name, text in COUNTED.items()},
        "cells": [asdict(cell) for cell in found.cells],
        "paper": asdict(PAPER_SAVING),
        "notes": list(found.notes),
    }


def _render(found: Prediction, task: str, console: Console) -> None:
    from rich.table import Table

    from emulator.experiments import PAPER_SAVING
    from harness.probing.formula import COUNTED

    title = (
        f"{task}, {found.local_epochs} local epochs, {found.energy} energy, {found.rule} choice, "
        f"from {found.profiles} profiles [{found.origin.value}]"
    )
    console.print(title, style="bold", markup=False)
    table = Table(box=None, pad_edge=False)
    for name in ("M / K", "counted", "s", "J", "time saved %", "energy saved %", "wait J"):
        table.add_column(name, justify="left" if name == "counted" else "right", no_wrap=True)
    for cell in found.cells:
        waits = [_number(wait) for wait in (cell.vanilla_wait_j, cell.probing_wait_j)]
        totals = [_number(cell.vanilla_s), _number(cell.vanilla_j)]
        table.add_row(f"{cell.candidates} / {cell.chosen}", "vanilla", *totals, "", "", waits[0])
        for accounting, saving in cell.savings.items():
            totals = [_number(saving.time_s), _number(saving.energy_j)]
            shares = [_share(saving.time_saved), _share(saving.energy_saved)]
            table.add_row("", accounting.value, *totals, *shares, waits.pop() if len(waits) > 1 else "")
    console.print(table)
    for name, text in COUNTED.items():
        console.print(f"{name}: {text}", markup=False, soft_wrap=True)
    console.print(WAITING, markup=False, soft_wrap=True)
    for line in (*found.notes, PAPER_SAVING.text, PAPER_SAVING.remark):
        console.print(line, markup=False, soft_wrap=True)


def _number(interval: Interval) -> str:
    from harness.cli.profile.view import digits

    return digits(interval.mean, 3)


def _share(interval: Interval) -> str:
    """Percent, its interval to full percents where that says enough."""
    mean, low, high = (100 * value for value in (interval.mean, interval.low, interval.high))
    places = 0 if high - low >= 1 else 1
    return f"{mean:z.1f} ({low:z.{places}f}–{high:z.{places}f})"
