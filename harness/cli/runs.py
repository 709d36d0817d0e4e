"""``joulefleet runs``: what is stored, in what state, and how to get a killed run back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli.frame import Group, Output, columns, root_option, run_argument

_root = root_option()


@click.group("runs", cls=Group)
def runs() -> None:
    """Stored runs: list, show, note, salvage."""


@runs.command("list")
@_root
def list_runs(root: Path) -> Output:
    """List the runs in a folder, oldest first."""
    from joulefleet.runstore import RunStore

    found = [run.as_dict() for run in RunStore(root).list()]
    rows = [
        (Path(run["path"]).name, run["kind"] or "?", run["state"], " ".join(run["tags"]), run["problem"])
        for run in found
    ]
    text = columns(("run", "kind", "state", "tags", "problem"), rows) if rows else f"no runs in {root}"
    return Output(found, text)


@runs.command("show")
@run_argument
def show_run(run: Path) -> Output:
    """Show one run: its record, tables with row counts, and files."""
    from joulefleet.runstore import table_rows
    from joulefleet.runstore.run import read_run

    record = read_run(run)
    tables = {
        str(file.relative_to(run)): table_rows(file)
        for file in sorted(run.rglob("*"))
        if file.suffix in (".parquet", ".arrows") and not file.name.startswith(".")
    }
    files = sorted(str(f.relative_to(run)) for f in run.rglob("*") if f.is_file() and f.name[0] != ".")
    data: dict[str, Any] = {
        **record.model_dump(mode="json"),
        "path": str(run),
        "tables": tables,
        "files": files,
    }
    lines = [f"{run.name}  {record.kind}, {record.status.value}"]
    lines += [f"  error: {record.error}"] if record.error else []
    lines += [f"  {name}" + (f"  {tables[name]:,} rows" if name in tables else "") for name in files]
    return Output(data, lines)


@runs.command("note")
@run_argument
@click.argument("text", required=False)
@click.option("--job", default="", help="About this recording of the run alone.")
def note_run(run: Path, text: str | None, job: str) -> Output:
    """Write TEXT beside RUN, to be shown on its page; without TEXT, show what was written.

    A word like #baseline is a tag, by which `joulefleet lab` finds the run; #-baseline takes it away.
    """
    from joulefleet.runstore.notes import add_note, read_notes
    from joulefleet.runstore.run import read_run

    read_run(run)  # a folder that is no run gets no notes
    if text is None:
        found = read_notes(run)
        lines = [f"{one.written_utc:%Y-%m-%d %H:%M} UTC {one.job}: {one.text}" for one in found]
        return Output([one.model_dump(mode="json") for one in found], lines or "no notes")
    written = add_note(run, text, job)
    return Output(written.model_dump(mode="json"), f"noted; `joulefleet report {run}` shows it")


@runs.command("salvage")
@_root
@click.argument("run", required=False)
@click.option("--all", "everything", is_flag=True, help="Every killed run in the folder.")
def salvage(root: Path, run: str | None, everything: bool) -> Output:
    """Recover what a killed run had written. Without RUN, only say which runs were killed."""
    from harness.evidence.capture import salvage
    from joulefleet.runstore import RunStore, find_run

    if run is not None and everything:
        raise click.UsageError("either RUN or --all")
    killed = [found.path for found in RunStore(root).list() if found.state == "killed"] if run is None else []
    if killed and not everything:
        names = [
            f"{path.name}: was killed; its open tables would be closed, torn lines cut" for path in killed
        ]
        data = [{"path": str(path), "status": "killed"} for path in killed]
        return Output(
            data, [*names, f"nothing was changed; `joulefleet runs salvage --all --root {root}` does it"]
        )
    reports = [salvage(path) for path in (killed if run is None else [find_run(root, run)])]

    lines = []
    for report in reports:
        rows = ", ".join(f"{name}: {n:,} rows" for name, n in report.tables.items()) or "no open tables"
        lines.append(f"{report.path.name}: {report.status.value}; {rows}")
        problems = report.problems.items()
        lines += [f"  {place}: not recovered, left as it was: {why}" for place, why in problems]
    return Output([report.as_dict() for report in reports], lines or "nothing to salvage")
