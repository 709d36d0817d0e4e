"""``joulefleet bench federate``: federated rounds on bench devices, with the emulator's selectors."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Command, Output, inventory_option, root_option

if TYPE_CHECKING:
    from rich.console import Console

    from emulator import Result, RoundOutcome
    from harness.federate.files import FederateFiles
    from power import DeviceProfile

_file = click.Path(path_type=Path, dir_okay=False)
_folder = click.Path(path_type=Path, file_okay=False)
_profile = click.Path(path_type=Path, exists=True)


@click.command("federate", cls=Command)
@click.argument("scenario")
@inventory_option()
@click.option("--settings", type=_file, help="How to play it on the bench (federate.toml); has defaults.")
@click.option("--selector", help="Instead of the scenario's own.")
@click.option("--rounds", type=click.IntRange(1), help="Instead of the scenario's.")
@click.option("--seed", type=click.IntRange(0), help="By default the scenario's first.")
@click.option("--profiles", type=_profile, multiple=True,
              help="What the server knows of the devices at first: profile files, or a run's folder; "
              "by default every device plays one round to tell.")  # fmt: skip
@root_option("Where a new run goes.")
@click.option("--dry-run", is_flag=True, help="Say what would be played, and touch nothing.")
@click.option("--resume", type=_folder, help="Take this run up again: finished rounds are kept.")
def federate(
    scenario: str,
    inventory: Path,
    settings: Path | None,
    selector: str | None,
    rounds: int | None,
    seed: int | None,
    profiles: tuple[Path, ...],
    root: Path,
    dry_run: bool,
    resume: Path | None,
) -> Output:
    """Play SCENARIO (a file or a preset) on the devices of an inventory, under their meters."""
    from harness.federate.files import read_federate_files
    from harness.profiles.library import profiles_at

    files = read_federate_files(scenario, inventory, settings, selector=selector, seed=seed, rounds=rounds)
    known = profiles_at(profiles) if profiles else None
    if dry_run:
        return _dry_run(files)
    return _play(files, root, resume, known)


def _dry_run(files: FederateFiles) -> Output:
    data = _what(files)

    def render(console: Console) -> None:
        protocol = files.scenario.protocol
        console.print(
            f"{files.scenario.name}: {protocol.rounds} rounds, {protocol.k} of {len(files.devices)} devices, "
            f"{protocol.local_epochs} local epochs, selector {data['selector']}, seed {files.seed}",
            markup=False,
        )
        for number, device in enumerate(files.devices):
            console.print(f"  device {number}: {device}", markup=False)
        for line in data["notes"]:
            console.print(line, markup=False, soft_wrap=True)
        console.print("nothing was touched")

    return Output(data, render)


def _what(files: FederateFiles) -> dict[str, Any]:
    protocol = files.scenario.protocol
    ignored = ", ".join(files.not_used)
    return {
        "scenario": files.scenario.name,
        "selector": files.scenario.selector.name,
        "seed": files.seed,
        "devices": list(files.devices),
        "rounds": protocol.rounds,
        "k": protocol.k,
        "candidates": files.scenario.candidates,
        "backend": files.settings.backend,
        "conditions": [c.model_dump(mode="json") for c in files.settings.conditions],
        "notes": [f"not used, since the devices are real: {ignored}"] if ignored else [],
    }


def _play(
    files: FederateFiles, root: Path, resume: Path | None, profiles: list[DeviceProfile] | None
) -> Output:
    from harness.cli.meter.live import stop_on_signals
    from harness.federate.run import run_federation
    from harness.outputs import OUTPUTS

    place: list[Path] = []

    def listener(event: str, what: str, facts: dict[str, object]) -> None:
        if event == "run":
            place.append(Path(what))
        text = str(facts.get("stage", "")) if event == "stage" else event.replace("_", " ")
        if said := facts.get("error") or facts.get("note"):
            text += f": {said}"
        _say(f"{what}: {text}")

    def on_round(outcome: RoundOutcome) -> None:
        _say(f"round {outcome.round}: validation accuracy {outcome.accuracy:.1%}, {outcome.energy_j:.3g} J")

    with stop_on_signals() as stop:
        try:
            result = run_federation(
                files,
                root,
                resume=resume,
                profiles=profiles,
                stop=stop,
                listener=listener,
                on_round=on_round,
                outputs=OUTPUTS,
            )
        except KeyboardInterrupt:
            if place:
                click.echo(f"to go on: {files.command(place[0])}", err=True)
            raise
    return Output(_data(files, result), lambda console: _render(files, result, console))


def _say(text: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)


def _data(files: FederateFiles, result: Result) -> dict[str, Any]:
    record, rounds = result.record, result.rounds
    return {
        **_what(files),
        "run": str(result.path),
        "origin": record.facts["cost_origin"],
        "played": record.rounds,
        "ended_early": record.ended_early,
        "test_accuracy": record.test_accuracy,
        "time_s": {name: float(rounds[f"time_s_{name}"].sum()) for name in _accountings()},
        "energy_j": {name: float(rounds[f"energy_j_{name}"].sum()) for name in _accountings()},
        "failed_parts": int(rounds["n_left"].sum()),
    }


def _accountings() -> list[str]:
    from emulator import Accounting

    return [accounting.value for accounting in Accounting]


def _render(files: FederateFiles, result: Result, console: Console) -> None:
    said = _data(files, result)
    console.print(
        f"{said['played']} rounds on {len(files.devices)} devices with {said['selector']} "
        f"[{said['origin']}]: {result.path}",
        markup=False,
    )
    if said["test_accuracy"] is not None:
        console.print(f"test accuracy {said['test_accuracy']:.1%}")
    for name in _accountings():
        console.print(f"{name}: {said['time_s'][name]:.3g} s, {said['energy_j'][name]:.3g} J in all rounds")
    if said["failed_parts"]:
        console.print(
            f"{said['failed_parts']} parts failed: `{result.path / 'rounds'}` says why", markup=False
        )
    for line in (*said["notes"], said["ended_early"]):
        if line:
            console.print(line, markup=False, soft_wrap=True)
    console.print(f"next: `joulefleet probing fidelity {result.path} --profiles ...`", markup=False)
