"""``fedjoule report``: the HTML page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.frame import Command, Output

if TYPE_CHECKING:
    from rich.console import Console


@click.command("report", cls=Command)
@click.argument("run")
@click.option(
    "--root", type=click.Path(path_type=Path, file_okay=False), default=Path("runs"), show_default=True,
    help="Folder that holds the runs.",
)  # fmt: skip
@click.option("--open", "show", is_flag=True, help="Show it in the browser.")
def report(run: str, root: Path, show: bool) -> Output:
    """Make the HTML page of RUN, with its JUnit results beside it. One file, no network needed."""
    from fedjoule.runstore import find_run

    page = _page(find_run(root, run))
    if show:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())

    def render(console: Console) -> None:
        console.print(str(page), markup=False)

    return Output({"report": str(page), "bytes": page.stat().st_size}, render)


def _page(path: Path) -> Path:
    """Bench runs and experiments are put on a page anew; others have theirs from what made them."""
    from fedjoule.errors import ConfigError
    from fedjoule.runstore.run import read_run
    from harness.report.page import REPORT_FILE

    kind = read_run(path).kind
    if kind in ("bench", "federation"):
        from harness.outputs import write_outputs

        write_outputs(path)
    elif kind == "experiment":
        from harness.experiment_outputs import write_experiment

        write_experiment(path)
    elif not (path / REPORT_FILE).is_file():
        raise ConfigError(
            f"{path}: a run of kind {kind!r} has no page",
            hint="bench runs, experiments and the demo have one",
        )
    return path / REPORT_FILE
