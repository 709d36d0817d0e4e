"""``fedjoule list``: everything that can be named in a file or on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from harness.cli.frame import Group, Output

if TYPE_CHECKING:
    from rich.console import Console

    from fedjoule.registry import Entry


@click.group("list", cls=Group)
def list_group() -> None:
    """Show what can be named: meters, selectors, commands."""


@list_group.command("meters")
def meters() -> Output:
    """Power meters, built in and from installed packages."""
    from power.meter import METERS

    return _entries(METERS.entries())


@list_group.command("selectors")
def selectors() -> Output:
    """Client selectors, built in and from installed packages."""
    from emulator.selectors.base import SELECTORS

    return _entries(SELECTORS.entries())


@list_group.command("commands")
def commands() -> Output:
    """Commands of this version, and the names reserved for later ones."""
    from harness.cli import PLANNED, READY

    rows = {
        **{n: ("ready", s) for n, (_, s) in READY.items()},
        **{n: ("planned", s) for n, s in PLANNED.items()},
    }

    def render(console: Console) -> None:
        for name, (state, summary) in sorted(rows.items()):
            console.print(f"{name:<12} {state:<8} {summary}")

    return Output({name: {"state": state, "summary": s} for name, (state, s) in rows.items()}, render)


def _entries(entries: dict[str, Entry]) -> Output:
    def render(console: Console) -> None:
        for entry in entries.values():
            console.print(f"{entry.name:<14} {entry.summary}  [dim]({entry.source})[/dim]")

    return Output(
        {e.name: {"summary": e.summary, "source": e.source, "target": e.target} for e in entries.values()},
        render,
    )
