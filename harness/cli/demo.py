"""``fedjoule demo``: the whole tool end to end, on this machine, without hardware."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.frame import Command, Output

if TYPE_CHECKING:
    from rich.console import Console


@click.command("demo", cls=Command)
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs"),
    show_default=True,
    help="Where the run goes.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
def demo(root: Path, seed: int) -> Output:
    """The whole tool end to end, here and now, without hardware.

    A process on this machine plays the device and really trains; an emulated Monsoon reads the power
    that its CPU time stands for; the measured profile then drives a short emulation of a fleet. Every
    number it prints is emulated, and says so.
    """
    from harness.cli.progress import progress
    from harness.demo import STEPS, run_demo

    with progress("demo", len(STEPS)) as advance:
        result = run_demo(root, seed, on_step=advance)

    def render(console: Console) -> None:
        for line in result.summary():
            console.print(line, markup=False)

    return Output(result.as_dict(), render)
