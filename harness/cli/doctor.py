"""``joulefleet doctor``: what works on this machine, why the rest does not, and how to fix it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.frame import Command, Output
from joulefleet.errors import EXIT_FAILED

if TYPE_CHECKING:
    from rich.console import Console

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command("doctor", cls=Command)
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings too.")
@click.option(
    "--inventory",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also try every device of a devices.toml.",
)
@click.option(
    "--runs", type=click.Path(path_type=Path), default=Path("runs"), help="Where runs are to be stored."
)
def doctor(strict: bool, inventory: Path | None, runs: Path) -> Output:
    """Check this machine: what works, why not, how to fix it."""
    from harness.doctor import examine

    checks = examine(inventory, runs)
    bad = [c for c in checks if c.verdict == "fail" or (strict and c.verdict == "warn")]

    def render(console: Console) -> None:
        for check in checks:
            colour = _COLOURS[check.verdict]
            console.print(f"[{colour}]{check.verdict:<4}[/{colour}] {check.name}: {check.found}", markup=True)
            if check.why:
                console.print(f"       why: {check.why}", markup=False)
                console.print(f"       fix: {check.fix}", markup=False)

    return Output([c.as_dict() for c in checks], render, exit_code=EXIT_FAILED if bad else 0)
