"""``joulefleet list``: everything that can be named in a file or on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Group, Output
from joulefleet.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from joulefleet.registry import Entry

UNLOADABLE = "cannot be loaded"


@click.group("list", cls=Group)
def list_group() -> None:
    """Show what can be named: meters, selectors, scenarios, tasks, data, partitions, commands."""


@list_group.command("meters")
def meters() -> Output:
    """Power meters, built in and from installed packages."""
    from power.meter import METERS

    return _entries(METERS.entries())


@list_group.command("selectors")
@click.argument("name", required=False)
def selectors(name: str | None) -> Output:
    """Client selectors: family, what they probe and need, paper, deviations; of one NAME also its options."""
    from emulator.selectors.base import SELECTORS, Family

    if name is not None:
        return _one_selector(name)
    rows = {name: _selector(entry) for name, entry in SELECTORS.entries().items()}

    def render(console: Console) -> None:
        for family in (*Family, UNLOADABLE):
            members = {name: row for name, row in rows.items() if row["family"] == family}
            if members:
                console.print(f"[bold]{family}[/bold]")
            for name, row in members.items():
                _show_selector(console, name, row)

    return Output(rows, render)


@list_group.command("scenarios")
@click.argument("name", required=False)
def scenarios(name: str | None) -> Output:
    """Scenarios that come with joulefleet, for `joulefleet emulate`; of one NAME the file, to begin with."""
    from emulator.scenario.load import preset_summaries, preset_text

    if name is not None:
        text = preset_text(name)
        # Not through the console: it would wrap what is meant for a file.
        return Output({"name": name, "toml": text}, lambda _: click.echo(text, nl=False))
    rows = preset_summaries()

    def render(console: Console) -> None:
        for name, summary in rows.items():
            console.print(f"{name:<38} {summary}", markup=False)

    return Output(rows, render)


@list_group.command("tasks")
def tasks() -> Output:
    """Tasks, a scenario's `task.name`: the model, and the data that it is made for."""
    from device_agents.workloads.tasks import TASKS

    rows = {
        task.name: {
            "model": task.model,
            "data_set": task.data_set,
            "input_shape": list(task.input_shape),
            "vocabulary": task.vocabulary,
            "classes": task.classes,
        }
        for task in TASKS.values()
    }

    def render(console: Console) -> None:
        for name, task in TASKS.items():
            size = " x ".join(map(str, task.input_shape)) + (" tokens" if task.vocabulary else "")
            line = f"{task.model} on {task.data_set}: samples of {size} in {task.classes} classes"
            console.print(f"{name:<26} {line}", markup=False)
        console.print("`joulefleet list data` says where the data comes from", markup=False)

    return Output(rows, render)


@list_group.command("data")
def data() -> Output:
    """Data sets, a scenario's `task.data`, built in and from installed packages, and where they come from."""
    from emulator.data.sources import DATA_SETS, FOLDER_VARIABLE, data_folder

    note = f"data folder: {data_folder()}; {FOLDER_VARIABLE} names another"
    return _entries(DATA_SETS.entries(), note)


@list_group.command("partitions")
def partitions() -> Output:
    """Partitions, a scenario's `task.partition`: who has which samples, with their options."""
    from emulator.data.partition import PARTITIONS

    rows = {name: _partition(entry) for name, entry in PARTITIONS.entries().items()}

    def render(console: Console) -> None:
        from rich.markup import escape

        for name, row in rows.items():
            what = row.get("error", row["summary"])
            console.print(f"{name:<16} {escape(what)}  [dim]({escape(row['source'])})[/dim]")
            if row.get("options"):
                console.print(f"{'':<16} [dim]{escape(_options_line(row['options']))}[/dim]")

    return Output(rows, render)


@list_group.command("commands")
def commands() -> Output:
    """The commands of this version."""
    from harness.cli import READY

    rows = {name: summary for name, (_, summary) in sorted(READY.items())}

    def render(console: Console) -> None:
        for name, summary in rows.items():
            console.print(f"{name:<12} {summary}", markup=False)

    return Output(rows, render)


def _selector(entry: Entry) -> dict[str, Any]:
    """What the class says about itself; of a plug-in that cannot be loaded, why."""
    from emulator.selectors.base import SELECTORS

    row: dict[str, Any] = {"summary": entry.summary, "source": entry.source, "target": entry.target}
    try:
        selector = SELECTORS.load(entry.name)
    except ConfigError as error:
        return {**row, "family": UNLOADABLE, "error": error.message}
    return {
        **row,
        "family": str(selector.family),
        "probe": str(selector.probe),
        "profiling": str(selector.profiling),
        "needs": sorted(selector.needs),
        "needs_weights": selector.needs_weights,
        "privileged": selector.privileged,
        "paper": selector.paper,
        "deviations": selector.deviations,
    }


def _one_selector(name: str) -> Output:
    """All there is to know about one, with what its module says about equations and switches."""
    import inspect

    from emulator.selectors.base import SELECTORS
    from emulator.selectors.parts.options import options_of

    selector = SELECTORS.load(name)
    options = options_of(selector)
    text = inspect.getdoc(inspect.getmodule(selector)) or inspect.getdoc(selector) or ""
    row = {**_selector(SELECTORS.entries()[name]), "options": options, "description": text}

    def render(console: Console) -> None:
        _show_selector(console, name, row)
        console.print(f"  {'':<22} {_options_line(options)}", markup=False)
        console.print(f"\n{text}", markup=False)

    return Output(row, render)


def _partition(entry: Entry) -> dict[str, Any]:
    """One partition with its options; of a plug-in that cannot be loaded, why."""
    from emulator.data.partition import partition_options

    row = {"summary": entry.summary, "source": entry.source, "target": entry.target}
    try:
        return {**row, "options": partition_options(entry.name)}
    except ConfigError as error:
        return {**row, "error": error.message}


def _options_line(options: dict[str, Any]) -> str:
    shown = [name if value is None else f"{name} = {value!r}" for name, value in options.items()]
    return f"options: {', '.join(shown) or 'none'}"


def _show_selector(console: Console, name: str, row: dict[str, Any]) -> None:
    from rich.markup import escape

    if "error" in row:
        console.print(f"  {name:<22} {escape(row['error'])}")
        return
    needs = [*row["needs"], *(["uploaded weights"] if row["needs_weights"] else [])]
    marks = [
        *(["PRIVILEGED: knows what no server could"] if row["privileged"] else []),
        *([f"probe: {row['probe']}"] if row["probe"] != "none" else []),
        *([f"profiling: {row['profiling']}"] if row["profiling"] != "none" else []),
        f"needs: {', '.join(needs) or 'nothing'}",
    ]
    console.print(
        f"  {name:<22} {escape(row['summary'] or row['paper'])}  [dim]({escape(row['source'])})[/dim]"
    )
    lines = ["; ".join(marks)]
    if row["paper"]:
        lines += [f"paper: {row['paper']}", f"differs: {row['deviations'] or 'nowhere'}"]
    for line in lines:
        console.print(f"  {'':<22} [dim]{escape(line)}[/dim]")


def _entries(entries: dict[str, Entry], note: str = "") -> Output:
    def render(console: Console) -> None:
        for entry in entries.values():
            console.print(f"{entry.name:<14} {entry.summary}  [dim]({entry.source})[/dim]")
        if note:
            console.print(note, markup=False)

    return Output(
        {e.name: {"summary": e.summary, "source": e.source, "target": e.target} for e in entries.values()},
        render,
    )
