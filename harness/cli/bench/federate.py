"""``joulefleet bench federate``: federated rounds on bench devices, with the emulator's selectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Command, Output, inventory_option, root_option
from harness.cli.own_code import code_option

if TYPE_CHECKING:
    import pandas as pd

    from emulator import Result, RoundOutcome
    from harness.federate.files import FederateFiles
    from power import DeviceProfile

COSTS = {"time_s": "s", "energy_j": "J"}
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
@code_option
@root_option("Where a new run goes.")
@click.option("--dry-run", is_flag=True, help="Say what would be played, and touch nothing.")
@click.option("--resume", type=_folder, help="Continue this run: finished rounds are kept.")
def federate(
    scenario: str,
    inventory: Path,
    settings: Path | None,
    selector: str | None,
    rounds: int | None,
    seed: int | None,
    profiles: tuple[Path, ...],
    code: tuple[Path, ...],
    root: Path,
    dry_run: bool,
    resume: Path | None,
) -> Output:
    """Run SCENARIO (a file or a preset) on the devices of an inventory, under their meters."""
    from harness.federate.files import read_federate_files
    from harness.profiles.library import profiles_at

    files = read_federate_files(
        scenario, inventory, settings, selector=selector, seed=seed, rounds=rounds, code=code
    )
    known = profiles_at(profiles) if profiles else None
    if dry_run:
        return _dry_run(files)
    return _play(files, root, resume, known)


def _dry_run(files: FederateFiles) -> Output:
    data, protocol = _what(files), files.scenario.protocol
    title = (
        f"{files.scenario.name}: {protocol.rounds} rounds, {protocol.k} of {len(files.devices)} devices, "
        f"{protocol.local_epochs} local epochs, selector {data['selector']}, seed {files.seed}"
    )
    devices = [f"  device {number}: {device}" for number, device in enumerate(files.devices)]
    return Output(data, [title, *devices, *data["notes"], "nothing was touched"])


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
    from harness.cli.bench.live import say, shown
    from harness.federate.run import run_federation
    from harness.outputs import OUTPUTS

    def on_round(outcome: RoundOutcome) -> None:
        say(f"round {outcome.round}: validation accuracy {outcome.accuracy:.1%}, {_round_energy(outcome)}")

    protocol = files.scenario.protocol
    with shown(files, protocol.local_epochs, protocol.rounds) as (stop, listener, board):
        result = run_federation(
            files,
            root,
            resume=resume,
            profiles=profiles,
            stop=stop,
            listener=listener,
            board=board,
            on_round=on_round,
            outputs=OUTPUTS,
        )
    data = _data(files, result)
    return Output(data, _lines(files, result.path, data))


def _round_energy(outcome: RoundOutcome) -> str:
    from emulator import Accounting

    known = outcome.known_costs or outcome.costs
    unknown = int(outcome.cost.unknown.sum())
    part = _part(unknown, len(outcome.clients)) if unknown else ""
    energy_j = known[Accounting.HONEST].energy_j
    return f"{'>= ' * bool(unknown)}{energy_j:.3g} J without waiting{part}"


def _part(unknown: int, parts: int) -> str:
    return f", {unknown} of {parts} unknown"


def _data(files: FederateFiles, result: Result) -> dict[str, Any]:
    from emulator.compare import participations
    from emulator.runs import N_UNKNOWN

    record, rounds = result.record, result.rounds
    return {
        **_what(files),
        "run": str(result.path),
        "origin": record.facts["cost_origin"],
        "played": record.rounds,
        "ended_early": record.ended_early,
        "test_accuracy": record.test_accuracy,
        **{what: {name: _whole(rounds[f"{what}_{name}"]) for name in _accountings()} for what in COSTS},
        **{
            f"known_{what}": {name: _least(rounds, f"{what}_{name}") for name in _accountings()}
            for what in COSTS
        },
        "wait_j": _whole(rounds["wait_j"]),
        "parts": int(rounds["candidates"].sum()),
        "unknown_parts": int(rounds[N_UNKNOWN].sum()) if N_UNKNOWN in rounds else None,
        **participations(rounds),
        "failed_parts": int(rounds["n_left"].sum()),
    }


def _whole(column: pd.Series[float]) -> float | None:
    """Of all rounds; None if that of one is not known."""
    return None if column.isna().any() else float(column.sum())


def _least(rounds: pd.DataFrame, column: str) -> float:
    """What is known of it."""
    return float(rounds[f"known_{column}" if f"known_{column}" in rounds else column].sum())


def _costs(said: dict[str, Any], name: str) -> str:
    """``12.3 s, >= 4.5 J in all rounds, 1 of 4 unknown``."""
    texts = []
    for what, unit in COSTS.items():
        bound = ">= " if said[what][name] is None else ""
        texts.append(f"{bound}{said[f'known_{what}'][name]:.3g} {unit}")
    unknown = any(said[what][name] is None for what in COSTS)
    part = _part(said["unknown_parts"], said["parts"]) if unknown and said["unknown_parts"] else ""
    return f"{', '.join(texts)} in all rounds{part}"


def _accountings() -> list[str]:
    from emulator import Accounting

    return [accounting.value for accounting in Accounting]


def _lines(files: FederateFiles, path: Path, said: dict[str, Any]) -> list[str]:
    played = f"{said['played']} rounds on {len(files.devices)} devices with {said['selector']}"
    lines = [f"{played} [{said['origin']}]: {path}"]
    if said["test_accuracy"] is not None:
        lines.append(f"test accuracy {said['test_accuracy']:.1%}")
    lines += [f"{name}: {_costs(said, name)}" for name in _accountings()]
    lines.append(f"{said['finished']} of {said['asked']} participations that were to send an update did")
    wait = "not known in whole" if said["wait_j"] is None else f"{said['wait_j']:.3g} J"
    lines.append(f"energies are without waiting for the choice: {wait}")
    if said["unknown_parts"]:
        lines.append(
            f"{said['unknown_parts']} of {said['parts']} parts have a cost that is not known: numbers with "
            ">= are lower bounds, which `joulefleet compare` does not rank"
        )
    if said["failed_parts"]:
        lines.append(f"{said['failed_parts']} parts failed: `{path / 'rounds'}` says why")
    lines += filter(None, (*said["notes"], said["ended_early"]))
    return [*lines, f"next: `joulefleet probing fidelity {path} --profiles ...`"]
