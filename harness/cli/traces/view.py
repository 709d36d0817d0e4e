"""How ``joulefleet traces`` shows trace sets, findings and statistics to people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.cli.frame import columns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from traces import TraceSet
    from traces.quality import FindingCounts, RepairRecord
    from traces.stats import TraceStats


def summary_lines(found: TraceSet) -> list[str]:
    """What a set holds and where it came from."""
    record, imported = found.record, found.record.imported
    lines = [f"{found.path}  {record.users:,} users, {record.provenance.origin.value}"]
    lines.append(f"  from: {record.provenance.basis}")
    lines += [f"  {name}: {table.rows:,} rows" for name, table in record.tables.items() if table.rows]
    if imported is not None:
        lines.append(f"  rows read: {imported.rows:,}, unusable: {imported.bad_rows:,}")
        lines += [f"    {example}" for example in imported.bad_examples[:5]]
        lines += [f"  note: {note} ({count:,})" for note, count in imported.notes.items()]
    return lines + ([f"  repairs: {len(record.repairs):,}"] if record.repairs else [])


def user_table(users: Iterable[dict[str, Any]]) -> str:
    """One line per user."""
    rows = [(u["user"], f"{u['days']:.2f}", u["time_zone"] or "?", ", ".join(u["channels"])) for u in users]
    return columns(("user", "days", "time zone", "channels"), rows)


def finding_lines(counts: FindingCounts, changed: list[str]) -> list[str]:
    """Findings, errors first, and the verdict."""
    lines = [f"{name}.parquet is not what the manifest says: edited or damaged" for name in changed]
    if counts.rows:
        rows = [
            (
                row.severity.value,
                row.channel,
                str(row.as_dict()["meaning"]),
                f"{row.users:,}",
                f"{row.count:,}",
                row.example,
            )
            for row in counts.rows
        ]
        lines.append(columns(("", "channel", "finding", "traces", "count", "e.g."), rows))
    verdict = f"{counts.users_with_errors:,} with errors" if counts.users_with_errors else "none with errors"
    return [*lines, f"{counts.users:,} traces, {verdict}"]


def repair_lines(repairs: Iterable[RepairRecord], left: FindingCounts) -> list[str]:
    """What was changed, by kind, and what is still wrong."""
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for change in repairs:
        users, count = counts.get((change.channel, change.action), (0, 0))
        counts[change.channel, change.action] = (users + 1, count + change.count)
    lines = [
        f"repaired  {channel}: {action} ({count:,} in {users:,} traces)"
        for (channel, action), (users, count) in sorted(counts.items())
    ]
    last = f"repaired copy: {left.users_with_errors:,} traces with errors left"
    return [*(lines or ["nothing to repair"]), last]


def stats_lines(stats: TraceStats) -> list[str]:
    """The spread of sessions and the shares by hour."""
    from harness.report.traces_page import hour_rows, spread_rows

    lines = [f"{stats.users:,} users, {stats.user_days:,.1f} days on record together"]
    for name, values in spread_rows(stats):
        lines.append(f"{name}: {'  '.join(f'{key} {value:.4g}' for key, value in values.items())}")
    hours = "UTC for users without a time zone" if stats.users_in_utc else "local time"
    rows = [
        (f"{hour:02d}", *("-" if share is None else f"{share:.1%}" for share in shares))
        for hour, *shares in hour_rows(stats)
    ]
    return [
        *lines,
        columns((f"hour ({hours})", "screen on", "charging", "available"), rows),
        f"available: {stats.policy_text}; decided in {stats.decided:.0%} of the covered time",
    ]
