"""How ``joulefleet traces`` shows trace sets, findings and statistics to people.

Names come from foreign files: everything of them is escaped, or a user called ``[/]`` would break a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from traces import TraceSet
    from traces.quality import FindingCounts, RepairRecord
    from traces.stats import TraceStats


def render_summary(console: Console, found: TraceSet) -> None:
    """What a set holds and where it came from."""
    from rich.markup import escape

    record = found.record
    console.print(
        f"[bold]{escape(str(found.path))}[/bold]  {record.users:,} users, {record.provenance.origin.value}"
    )
    console.print(f"  from: {escape(record.provenance.basis)}")
    for name, table in record.tables.items():
        if table.rows:
            console.print(f"  {name}: {table.rows:,} rows")
    if record.imported is not None:
        console.print(f"  rows read: {record.imported.rows:,}, unusable: {record.imported.bad_rows:,}")
        for example in record.imported.bad_examples[:5]:
            console.print(f"    {escape(example)}")
        for note, count in record.imported.notes.items():
            console.print(f"  note: {escape(note)} ({count:,})")
    if record.repairs:
        console.print(f"  repairs: {len(record.repairs):,}")


def render_users(console: Console, users: Iterable[dict[str, Any]]) -> None:
    """One line per user."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("user", "days", "time zone", "channels", box=None)
    for user in users:
        zone = escape(user["time_zone"]) or "?"
        table.add_row(escape(user["user"]), f"{user['days']:.2f}", zone, ", ".join(user["channels"]))
    console.print(table)


def render_findings(console: Console, counts: FindingCounts, changed: list[str]) -> None:
    """Findings, errors first, and the verdict."""
    from rich.markup import escape
    from rich.table import Table

    for name in changed:
        console.print(f"[bold]{escape(name)}.parquet[/bold] is not what the manifest says: edited or damaged")
    if counts.rows:
        table = Table("", "channel", "finding", "traces", "count", "e.g.", box=None)
        for row in counts.rows:
            numbers = (f"{row.users:,}", f"{row.count:,}")
            meaning = str(row.as_dict()["meaning"])
            style = "bold" if row.severity.value == "error" else ""
            table.add_row(
                row.severity.value, row.channel, meaning, *numbers, escape(row.example), style=style
            )
        console.print(table)
    verdict = f"{counts.users_with_errors:,} with errors" if counts.users_with_errors else "none with errors"
    console.print(f"{counts.users:,} traces, {verdict}")


def render_repairs(console: Console, repairs: Iterable[RepairRecord], left: FindingCounts) -> None:
    """What was changed, by kind, and what is still wrong."""
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for change in repairs:
        users, count = counts.get((change.channel, change.action), (0, 0))
        counts[change.channel, change.action] = (users + 1, count + change.count)
    for (channel, action), (users, count) in sorted(counts.items()):
        console.print(f"repaired  {channel}: {action} ({count:,} in {users:,} traces)")
    if not counts:
        console.print("nothing to repair")
    console.print(f"repaired copy: {left.users_with_errors:,} traces with errors left")


def render_stats(console: Console, stats: TraceStats) -> None:
    """The spread of sessions and the shares by hour."""
    from rich.table import Table

    from harness.report.traces_page import hour_rows, spread_rows

    console.print(f"{stats.users:,} users, {stats.user_days:,.1f} days on record together")
    for name, values in spread_rows(stats):
        shown = "  ".join(f"{key} {value:.4g}" for key, value in values.items())
        console.print(f"{name}: {shown}")
    hours = "UTC for users without a time zone" if stats.users_in_utc else "local time"
    table = Table(f"hour ({hours})", "screen on", "charging", "available", box=None)
    for hour, *shares in hour_rows(stats):
        table.add_row(f"{hour:02d}", *("-" if share is None else f"{share:.1%}" for share in shares))
    console.print(table)
    console.print(f"available: {stats.policy_text}; decided in {stats.decided:.0%} of the covered time")
