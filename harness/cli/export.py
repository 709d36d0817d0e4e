"""``joulefleet export`` and ``joulefleet report``: a run in other people's formats, and as an HTML page."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Command, Output, run_argument
from harness.cli.terminal import echo

if TYPE_CHECKING:
    from harness.results.stored_run import StoredRun
    from harness.results.tables import RunTable


@click.command("export", cls=Command)
@run_argument
@click.option("--format", "form", type=click.Choice(["csv", "parquet", "json", "perfetto", "junit"]))
@click.option(
    "--out", type=click.Path(path_type=Path),
    help="For --format: a new folder for csv, parquet and json, a new file for the others.",
)  # fmt: skip
@click.option("--max-rows", type=click.IntRange(min=4), help="Rows of a CSV file; a million by default.")
@click.option(
    "--tensorboard", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Add the run's curves to this log folder of TensorBoard.",
)  # fmt: skip
@click.option(
    "--mlflow", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Add the run to this file store (mlruns) of MLflow.",
)  # fmt: skip
@click.option(
    "--share", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Copy the run into this new folder without addresses, users and key files, to give it away.",
)  # fmt: skip
def export(
    run: Path,
    form: str | None,
    out: Path | None,
    max_rows: int | None,
    tensorboard: Path | None,
    mlflow: Path | None,
    share: Path | None,
) -> Output:
    """Write RUN as CSV, Parquet, JSON, a Perfetto (Chrome) trace, JUnit XML, or for TensorBoard or MLflow."""
    from harness.results.stored_run import StoredRun

    _check(form, out, max_rows, tensorboard or mlflow or share)
    if share is not None:
        return _shared(run, share)
    stored = StoredRun(run)
    written: list[dict[str, Any]] = []
    if form is not None and out is not None:
        files = _WRITERS[form](stored, out, max_rows)
        written.append({"out": str(out), "format": form, "files": files})
    for name, folder in (("tensorboard", tensorboard), ("mlflow", mlflow)):
        if folder is not None:
            written.append({"out": str(folder), "format": name, "files": _curves(name, stored, folder)})
    lines = [_line(file) for one in written for file in one["files"]]
    data = written[0] if len(written) == 1 else {"exports": written}
    return Output(data, lines)


def _shared(run: Path, share: Path) -> Output:
    from harness.export.share import share_run

    done = share_run(run, share)
    lines = [f"replaced: {kind}, {count} times" for kind, count in sorted(done.replaced.items())]
    lines += [f"changed: {name}" for name in done.changed] + [f"left out: {name}" for name in done.left_out]
    kept = "kept: names of devices and jobs, products, serial numbers of instruments, this machine's system"
    data = {"out": str(share), **asdict(done)}
    return Output(data, [*lines, kept, f"{share}: can be given away; read what you wrote in names and notes"])


def _check(form: str | None, out: Path | None, max_rows: int | None, tracker: Path | None) -> None:
    if (form is None) != (out is None):
        raise click.UsageError("--format and --out go together: what to write, and where")
    if form is None and tracker is None:
        raise click.UsageError(
            "nothing to write: give --format with --out, --tensorboard, --mlflow or --share"
        )
    if max_rows is not None and form != "csv":
        raise click.UsageError("--max-rows is for --format csv; the others have no rows to cap")


def _line(file: dict[str, Any]) -> str:
    rows, total = file["rows"], file.get("rows_total", file["rows"])
    if rows == total:
        return f"{file['file']}: {rows:,} {file.get('what', 'rows')}"
    return f"{file['file']}: {rows:,} of {total:,} rows: {file['note']}"


def _csv(run: StoredRun, out: Path, max_rows: int | None) -> list[dict[str, Any]]:
    from harness.export.tables import MAX_ROWS, export_csv

    written = export_csv(run, out, max_rows=max_rows or MAX_ROWS, more=_of_page(run))
    return [asdict(file) for file in written]


def _parquet(run: StoredRun, out: Path, _: int | None) -> list[dict[str, Any]]:
    from harness.export.tables import export_parquet

    return [
        {"file": file, "rows": rows} for file, rows in export_parquet(run, out, more=_of_page(run)).items()
    ]


def _json(run: StoredRun, out: Path, _: int | None) -> list[dict[str, Any]]:
    from harness.export.tables import export_json

    written = export_json(run, out, more=_of_page(run))
    return [{"file": file, "rows": rows} for file, rows in written.items()]


def _of_page(run: StoredRun) -> list[RunTable]:
    """The parts of its page; none of a run that cannot have a page yet."""
    from harness.outputs import page_of
    from harness.report.page_tables import page_tables
    from joulefleet.errors import ConfigError, DataQualityError

    try:
        return page_tables(page_of(run.path))
    except (ConfigError, DataQualityError) as error:
        echo(f"without the parts of its page: {error.message}", err=True)
        return []


def _perfetto(run: StoredRun, out: Path, _: int | None) -> list[dict[str, Any]]:
    from harness.export.perfetto import export_perfetto

    return [{"file": out.name, "rows": export_perfetto(run, out), "what": "events"}]


def _junit(run: StoredRun, out: Path, _: int | None) -> list[dict[str, Any]]:
    from harness.export.junit import write_junit
    from joulefleet.errors import DataQualityError

    if not run.job_lines:  # a build server would show an empty run as passed
        raise DataQualityError(
            f"{run.path}: a run of kind {run.record.kind!r} has no jobs, which become test cases",
            hint="of emulations, --format csv or parquet writes every round",
        )
    write_junit(run, out)
    return [{"file": out.name, "rows": len(run.job_lines), "what": "jobs"}]


def _curves(name: str, run: StoredRun, out: Path) -> list[dict[str, Any]]:
    if name == "tensorboard":
        from harness.export.tensorboard import export_tensorboard as write
    else:
        from harness.export.mlflow import export_mlflow as write

    return [{"file": file, "rows": points, "what": "points"} for file, points in write(run, out).items()]


_WRITERS = {"csv": _csv, "parquet": _parquet, "json": _json, "perfetto": _perfetto, "junit": _junit}


@click.command("figures", cls=Command)
@run_argument
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="A folder.")
@click.option("--partial", is_flag=True, help="Of an unfinished experiment: go on without what is missing.")
def figures(run: Path, out: Path, partial: bool) -> Output:
    """Write every figure of RUN's page as SVG and PDF, for a paper."""
    from harness.outputs import page_of
    from harness.report.paper_figures import write_figures

    written = write_figures(page_of(run, partial=partial), out)
    return Output([str(path) for path in written], f"{len(written)} files in {out}")


@click.command("report", cls=Command)
@run_argument
@click.option("--partial", is_flag=True, help="Of an unfinished experiment: go on without what is missing.")
@click.option("--open", "show", is_flag=True, help="Show it in the browser.")
def report(run: Path, partial: bool, show: bool) -> Output:
    """Make the HTML page of RUN: one file, no network needed.

    RUN is a run of `joulefleet bench`, `probing`, `emulate` or `experiment`. Beside the page of a run on the
    bench stand its JUnit results and epochs, beside that of an experiment its tables.
    """
    from harness.outputs import write_outputs

    page = write_outputs(run, partial=partial)[0]
    if show:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())

    return Output({"report": str(page), "bytes": page.stat().st_size}, str(page))
