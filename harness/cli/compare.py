"""``joulefleet compare``: emulation runs side by side, paired by seed."""

from __future__ import annotations

from pathlib import Path

import click

from emulator.compare.titles import METRICS
from harness.cli.frame import Command, Document, Output


@click.command("compare", cls=Command)
@click.argument(
    "runs", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False)
)
@click.option("--target", type=float,
              help="Accuracy (0 to 1), or error, to reach; by default what FedAvg ends with.")  # fmt: skip
@click.option("--within-energy", type=float, metavar="J",
              help="Also: the accuracy that so many joules buy.")  # fmt: skip
@click.option("--within-time", type=float, metavar="S",
              help="Also: the accuracy after so many seconds of rounds (R_T).")  # fmt: skip
@click.option("--accounting", type=click.Choice(["honest", "selected_only", "free"]), default="honest",
              show_default=True, help="Whose probes count.")  # fmt: skip
@click.option("--metric", "metrics", multiple=True, type=click.Choice(METRICS),
              help="Which tables; may be repeated. Classes per cohort need the runs' data.")  # fmt: skip
@click.option("--pair", "pairs", multiple=True, nargs=2, metavar="METHOD METHOD",
              help="Test these two against each other besides; may be repeated.")  # fmt: skip
@click.option("--mixed", is_flag=True, help="Compare runs of different scenarios or worlds, with a warning.")
@click.option("--format", "form", type=click.Choice(["text", "markdown", "latex", "csv"]), default="text",
              show_default=True)  # fmt: skip
def compare(
    runs: tuple[Path, ...],
    target: float | None,
    within_energy: float | None,
    within_time: float | None,
    accounting: str,
    metrics: tuple[str, ...],
    pairs: tuple[tuple[str, str], ...],
    mixed: bool,
    form: str,
) -> Output:
    """Compare methods over the same seeds: differences with intervals, tests, ranks."""
    from emulator import Accounting, compare_emulations
    from emulator.compare import render

    found = compare_emulations(
        runs,
        target=target,
        accounting=Accounting(accounting),
        pairs=pairs,
        with_cohorts="classes_per_cohort" in metrics,
        mixed=mixed,
        within_energy_j=within_energy,
        within_time_s=within_time,
    )
    forms = {
        "text": render.as_text,
        "markdown": render.as_markdown,
        "latex": render.as_latex,
        "csv": render.as_csv,
    }
    text = forms[form](found, metrics or found.shown)
    warnings = found.comparison.warnings if form in ("csv", "latex") else ()
    return Output(render.as_data(found), Document(text), warnings=warnings)
