"""``fedjoule export``: a run in other people's formats."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Command, Output

if TYPE_CHECKING:
    from harness.stored_run import StoredRun


@click.command("export", cls=Command)
@click.argument("run")
@click.option(
    "--root", type=click.Path(path_type=Path, file_okay=False), default=Path("runs"), show_default=True,
    help="Folder that holds the runs.",
)  # fmt: skip
@click.option("--format", "form", type=click.Choice(["csv", "parquet", "perfetto", "junit"]), required=True)
@click.option(
    "--out", type=click.Path(path_type=Path), required=True,
    help="A new folder for csv and parquet, a new file for the others.",
)  # fmt: skip
@click.option("--max-rows", type=click.IntRange(min=4), help="Rows of a CSV file; a million by default.")
def export(run: str, root: Path, form: str, out: Path, max_rows: int | None) -> Output:
    """Write RUN as CSV, Parquet, a Perfetto (Chrome) trace, or JUnit XML."""
    from fedjoule.runstore import find_run
    from harness.stored_run import StoredRun

    if max_rows is not None and form != "csv":
        raise click.UsageError("--max-rows is for --format csv; the others have no rows to cap")
    files = _WRITERS[form](StoredRun(find_run(root, run)), out, max_rows)
    lines = [_line(file) for file in files]
    data = {"out": str(out), "format": form, "files": files}
    return Output(data, lambda console: console.print("\n".join(lines), markup=False, soft_wrap=True))


def _line(file: dict[str, Any]) -> str:
    rows, total = file["rows"], file.get("rows_total", file["rows"])
    if rows == total:
        return f"{file['file']}: {rows:,} {file.get('what', 'rows')}"
    return f"{file['file']}: {rows:,} of {total:,} rows: {file['note']}"


def _csv(run: StoredRun, out: Path, max_rows: int | None) -> list[dict[str, Any]]:
    from harness.export.csv import MAX_ROWS, export_csv

    return [asdict(file) for file in export_csv(run, out, max_rows=max_rows or MAX_ROWS)]


def _parquet(run: StoredRun, out: Path, _: int | None) -> list[dict[str, Any]]:
    from harness.export.parquet import export_parquet

    return [{"file": file, "rows": rows} for file, rows in export_parquet(run, out).items()]


def _perfetto(run: StoredRun, out: Path, _: int | None) -> list[dict[str, Any]]:
    from harness.export.perfetto import export_perfetto

    return [{"file": out.name, "rows": export_perfetto(run, out), "what": "events"}]


def _junit(run: StoredRun, out: Path, _: int | None) -> list[dict[str, Any]]:
    from harness.export.junit import write_junit

    write_junit(run, out)
    return [{"file": out.name, "rows": len(run.job_lines), "what": "jobs"}]


_WRITERS = {"csv": _csv, "parquet": _parquet, "perfetto": _perfetto, "junit": _junit}
