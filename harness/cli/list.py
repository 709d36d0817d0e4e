"""``joulefleet list``: everything that can be named in a file or on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Document, Group, Output
from harness.cli.terminal import style
from joulefleet.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from joulefleet.registry import Entry

UNLOADABLE = "cannot be loaded"


@click.group("list", cls=Group)
def list_group() -> None:
    """Show what can be named: meters, selectors, scenarios, tasks, data, partitions, commands."""


@list_group.command("meters")
def meters() -> Output:
    """Power meters, built in and from installed packages."""
    from power import METERS

    return _entries(METERS.entries())


@list_group.command("selectors")
@click.argument("name", required=False)
def selectors(name: str | None) -> Output:
    """Client selectors: family, what they probe and need, paper, deviations; of one NAME also its options."""
    from emulator import SELECTORS, Family

    if name is not None:
        return _one_selector(name)
    rows = {name: _selector(entry) for name, entry in SELECTORS.entries().items()}
    lines: list[str] = []
    for family in (*Family, UNLOADABLE):
        members = {name: row for name, row in rows.items() if row["family"] == family}
        if members:
            lines.append(style(family, bold=True))
        for name, row in members.items():
            lines += _selector_lines(name, row)
    return Output(rows, lines)


@list_group.command("scenarios")
@click.argument("name", required=False)
def scenarios(name: str | None) -> Output:
    """Scenarios that come with joulefleet, for `joulefleet emulate`; of one NAME the file, to begin with."""
    from emulator.scenario import preset_summaries, preset_text

    if name is not None:
        text = preset_text(name)
        return Output({"name": name, "toml": text}, Document(text.removesuffix("\n")))
    rows = preset_summaries()
    return Output(rows, [f"{name:<38} {summary}" for name, summary in rows.items()])


@list_group.command("tasks")
def tasks() -> Output:
    """Tasks, a scenario's `task.name`: the model, and the data that it is made for."""
    from device_agents.workloads import TASKS
    from emulator.own_code import ALL_TASKS

    rows: dict[str, dict[str, Any]] = {
        task.name: {
            "model": task.model,
            "data_set": task.data_set,
            "input_shape": list(task.input_shape),
            "vocabulary": task.vocabulary,
            "classes": task.classes,
        }
        for task in TASKS.values()
    }
    lines = []
    for name, task in TASKS.items():
        size = " x ".join(map(str, task.input_shape)) + (" tokens" if task.vocabulary else "")
        what = f"{task.model} on {task.data_set}: samples of {size} in {task.classes} classes"
        lines.append(f"{name:<26} {what}")
    for name, entry in ALL_TASKS.entries().items():
        if name not in TASKS:  # not run for a list
            rows[name] = {"source": entry.source, "target": entry.target}
            lines.append(f"{name:<26} {entry.target}  {_dim(entry.source, brackets=True)}")
    notes = [
        "`joulefleet list data` says where the data comes from",
        "a task of your own is given with `--code FILE` (docs/own-code.md)",
    ]
    return Output(rows, [*lines, *notes])


@list_group.command("data")
def data() -> Output:
    """Data sets, a scenario's `task.data`, built in and from installed packages, and where they come from."""
    from emulator import DATA_SETS
    from emulator.data import FOLDER_VARIABLE, data_folder

    note = f"data folder: {data_folder()}; {FOLDER_VARIABLE} names another"
    return _entries(DATA_SETS.entries(), note)


@list_group.command("partitions")
def partitions() -> Output:
    """Partitions, a scenario's `task.partition`: who has which samples, with their options."""
    from emulator.data import PARTITIONS

    rows = {name: _partition(entry) for name, entry in PARTITIONS.entries().items()}
    lines = []
    for name, row in rows.items():
        lines.append(f"{name:<16} {row.get('error', row['summary'])}  {_dim(row['source'], brackets=True)}")
        if row.get("options"):
            lines.append(f"{'':<16} {_dim(_options_line(row['options']))}")
    return Output(rows, lines)


@list_group.command("commands")
def commands() -> Output:
    """The commands of this version."""
    from harness.cli import READY

    rows = {name: summary for name, (_, summary) in sorted(READY.items())}
    return Output(rows, [f"{name:<12} {summary}" for name, summary in rows.items()])


def _selector(entry: Entry) -> dict[str, Any]:
    """What the class says about itself; of a plug-in that cannot be loaded, why."""
    from emulator import SELECTORS

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

    from emulator import SELECTORS
    from emulator.selectors import options_of

    selector = SELECTORS.load(name)
    options = options_of(selector)
    text = inspect.getdoc(inspect.getmodule(selector)) or inspect.getdoc(selector) or ""
    row = {**_selector(SELECTORS.entries()[name]), "options": options, "description": text}
    lines = [*_selector_lines(name, row), f"  {'':<22} {_options_line(options)}", ""]
    return Output(row, [*lines, *text.split("\n")])


def _partition(entry: Entry) -> dict[str, Any]:
    """One partition with its options; of a plug-in that cannot be loaded, why."""
    from emulator.data import partition_options

    row = {"summary": entry.summary, "source": entry.source, "target": entry.target}
    try:
        return {**row, "options": partition_options(entry.name)}
    except ConfigError as error:
        return {**row, "error": error.message}


def _options_line(options: dict[str, Any]) -> str:
    shown = [name if value is None else f"{name} = {value!r}" for name, value in options.items()]
    return f"options: {', '.join(shown) or 'none'}"


def _selector_lines(name: str, row: dict[str, Any]) -> Iterator[str]:
    if "error" in row:
        yield f"  {name:<22} {row['error']}"
        return
    needs = [*row["needs"], *(["uploaded weights"] if row["needs_weights"] else [])]
    marks = [
        *(["PRIVILEGED: knows what no server could"] if row["privileged"] else []),
        *([f"probe: {row['probe']}"] if row["probe"] != "none" else []),
        *([f"profiling: {row['profiling']}"] if row["profiling"] != "none" else []),
        f"needs: {', '.join(needs) or 'nothing'}",
    ]
    yield f"  {name:<22} {row['summary'] or row['paper']}  {_dim(row['source'], brackets=True)}"
    about = ["; ".join(marks)]
    if row["paper"]:
        about += [f"paper: {row['paper']}", f"differs: {row['deviations'] or 'nowhere'}"]
    yield from (f"  {'':<22} {_dim(line)}" for line in about)


def _dim(text: str, *, brackets: bool = False) -> str:
    return style(f"({text})" if brackets else text, dim=True)


def _entries(entries: dict[str, Entry], note: str = "") -> Output:
    lines = [f"{e.name:<14} {e.summary}  {_dim(e.source, brackets=True)}" for e in entries.values()]
    return Output(
        {e.name: {"summary": e.summary, "source": e.source, "target": e.target} for e in entries.values()},
        [*lines, note] if note else lines,
    )
