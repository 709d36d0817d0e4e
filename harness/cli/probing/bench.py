"""``joulefleet probing validate PLAN|RUN``: rounds on the bench, and what they say."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Output
from joulefleet.errors import EXIT_FAILED

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from harness.probing.run import ProbingFiles
    from harness.probing.validation import MeasuredCell, Validation
    from joulefleet.interval import Interval
    from power.profile import Quantity

WAITING = "wait: of all candidates for the server's choice after the probe; in no other number"


def run_plan(plan: Path, root: Path, given: dict[str, Any]) -> Output:
    """Run a plan, or only say what it would run."""
    from harness.cli.meter.live import stop_on_signals
    from harness.outputs import OUTPUTS
    from harness.probing import run as probing_run

    files = probing_run.read_probing_files(plan, given["inventory"])
    if given["dry_run"]:
        return _dry_run(files)
    place: list[Path] = []

    def listener(event: str, what: str, facts: dict[str, object]) -> None:
        if event == "run":
            place.append(Path(what))
        text = str(facts.get("stage", "")) if event == "stage" else event.replace("_", " ")
        if facts.get("error"):
            text += f": {facts['error']}"
        click.echo(f"{time.strftime('%H:%M:%S')} {what}: {text}", err=True)

    with stop_on_signals() as stop:
        try:
            outcome = probing_run.run_probing(
                files, root, resume=given["resume"], stop=stop, listener=listener, outputs=OUTPUTS
            )
        except KeyboardInterrupt:
            if place:
                click.echo(f"to go on: {files.command(place[0])}", err=True)
            raise
    if outcome.failed:
        click.echo(f"to try failed rounds again: {files.command(outcome.path)}", err=True)
    return show_run(outcome.path, root, given)


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

    def render(console: Console) -> None:
        for planned in files.rounds:
            console.print(f"{planned.name}: {', '.join(planned.candidates)}", markup=False)
        console.print(f"{len(rounds)} rounds; nothing was touched")

    return Output({"rounds": rounds}, render)


def show_run(run: Path, root: Path, given: dict[str, Any]) -> Output:
    """What a probing run says, computed from its captures."""
    from harness.probing.validation import OWN_PROFILES, validate_run
    from harness.profiles.library import run_profiles
    from joulefleet.runstore import find_run

    source = given["source"]
    profiles = None
    if source is not None:
        profiles = [stored.profile for stored in run_profiles(find_run(root, source))]
    found = validate_run(run, energy=given["energy"], profiles=profiles, profiles_from=source or OWN_PROFILES)
    code = EXIT_FAILED if found.failed else 0
    return Output(_data(found), lambda console: _render(found, console), exit_code=code)


def _data(found: Validation) -> dict[str, Any]:
    from emulator.experiments import PAPER_SAVING
    from harness.probing.formula import COUNTED

    plan = found.plan
    return {
        "run": str(found.run),
        "origin": found.origin.value,
        "predicted_origin": found.predicted_origin.value if found.predicted_origin else None,
        "profiles_from": found.profiles_from,
        "task": plan.task,
        "backend": plan.backend,
        "local_epochs": plan.local_epochs,
        "keep": plan.keep,
        "energy": found.energy,
        "counted": {str(name): text for name, text in COUNTED.items()},
        "cells": [_cell(cell) for cell in found.cells],
        "paper": asdict(PAPER_SAVING),
        "rounds": [asdict(line) for line in found.rounds],
        "planned": found.planned,
        "failed": found.failed,
        "failed_attempts": found.failed_attempts,
        "notes": list(found.notes),
    }


def _cell(cell: MeasuredCell) -> dict[str, Any]:
    return {
        "candidates": cell.candidates,
        "chosen": cell.chosen,
        "repetitions": cell.repetitions,
        "vanilla_s": cell.vanilla_s.model_dump(),
        "vanilla_j": cell.vanilla_j.model_dump(),
        "probing_wait_j": cell.probing_wait_j.model_dump(),
        "savings": {
            accounting.value: {
                name: getattr(saving, name).model_dump()
                for name in ("time_s", "energy_j", "saved_s", "saved_j", "time_saved", "energy_saved")
            }
            for accounting, saving in cell.savings.items()
        },
        "predicted": None if cell.predicted is None else asdict(cell.predicted),
        "emulated": None if cell.emulated is None else asdict(cell.emulated),
    }


def _render(found: Validation, console: Console) -> None:
    from rich.table import Table

    from emulator import Accounting
    from emulator.experiments import PAPER_SAVING
    from harness.probing.formula import COUNTED

    plan = found.plan
    title = (
        f"{plan.task} with {plan.backend}, {plan.local_epochs} local epochs, {found.energy} energy, "
        f"{plan.keep} choice, on the bench [{found.origin.value}]"
    )
    console.print(title, style="bold", markup=False)
    table = Table(box=None, pad_edge=False)
    for name in ("M / K", "counted", "s", "J", "time saved %", "energy saved %", "wait J"):
        table.add_column(name, justify="left" if name == "counted" else "right", no_wrap=True)
    for cell in found.cells:
        _add_rows(table, cell)
    console.print(table)
    for cell in found.cells:
        honest = cell.savings[Accounting.HONEST]
        console.print(
            f"M = {cell.candidates}, K = {cell.chosen}, honest: {_absolute(honest.saved_s)} s and "
            f"{_absolute(honest.saved_j)} J saved per round; n = {cell.repetitions}",
            markup=False,
            soft_wrap=True,
        )
    if found.predicted_origin is not None:
        console.print(
            f"predicted [{found.predicted_origin.value}]: by the formula for the same rounds, from profiles "
            f"of {found.profiles_from}; emulator [{found.predicted_origin.value}]: the same rounds and "
            f"profiles, played by the emulator",
            markup=False,
            soft_wrap=True,
        )
    lines = [f"{name}: {text}" for name, text in COUNTED.items()]
    failed = [f"round {name} is missing: {why}" for name, why in found.failed.items()]
    done = f"{len(found.rounds)} of {found.planned} rounds finished, {found.failed_attempts} attempts failed"
    for line in (*lines, WAITING, *found.notes, done, *failed, PAPER_SAVING.text, PAPER_SAVING.remark):
        console.print(line, markup=False, soft_wrap=True)


def _add_rows(table: Table, cell: MeasuredCell) -> None:
    """Every accounting as measured, and below it as the formula and as the emulator have it."""
    from harness.probing.cost_rows import cost_rows

    for i, row in enumerate(cost_rows(cell)):
        name, share = {
            "bench": (row.counted, _share),
            "formula": ("  predicted", _range),
            "emulator": ("  emulator", _mean),
        }[row.source]
        shares = ["" if s is None else share(s) for s in (row.time_saved, row.energy_saved)]
        totals = [_digits(row.time_s.mean), _digits(row.energy_j.mean)]
        wait = "" if row.wait_j is None else _digits(row.wait_j)
        table.add_row("" if i else f"{cell.candidates} / {cell.chosen}", name, *totals, *shares, wait)


def _digits(value: float) -> str:
    from harness.cli.profile.view import digits

    return digits(value, 3)


def _absolute(quantity: Quantity) -> str:
    if quantity.half_width_95 is None:
        return f"{_digits(quantity.mean)} (no interval)"
    return f"{_digits(quantity.mean)} ± {_digits(quantity.half_width_95)}"


def _share(share: Interval) -> str:
    """Percent with half of its interval; without one it says so."""
    if not share.known:
        return f"{_mean(share)} (no interval)"
    return f"{_mean(share)} ± {50 * (share.high - share.low):.1f}"


def _range(share: Interval) -> str:
    return f"{_mean(share)} ({100 * share.low:z.0f}–{100 * share.high:z.0f})"


def _mean(share: Interval) -> str:
    return f"{100 * share.mean:z.1f}"
