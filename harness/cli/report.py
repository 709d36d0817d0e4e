"""``joulefleet report``: the HTML page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.frame import Command, Output, root_option

if TYPE_CHECKING:
    from rich.console import Console


@click.command("report", cls=Command)
@click.argument("run")
@root_option()
@click.option("--partial", is_flag=True, help="Of an unfinished experiment: go on without what is missing.")
@click.option("--open", "show", is_flag=True, help="Show it in the browser.")
def report(run: str, root: Path, partial: bool, show: bool) -> Output:
    """Make the HTML page of RUN: one file, no network needed.

    RUN is a run of `joulefleet bench`, `probing`, `emulate` or `experiment`. Beside the page of a run on the
    bench stand its JUnit results and epochs, beside that of an experiment its tables.
    """
    from harness.outputs import write_outputs
    from joulefleet.runstore import find_run

    page = write_outputs(find_run(root, run), partial=partial)[0]
    if show:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())

    def render(console: Console) -> None:
        console.print(str(page), markup=False)

    return Output({"report": str(page), "bytes": page.stat().st_size}, render)
