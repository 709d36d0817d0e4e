"""The page of ``joulefleet traces stats``: what people do with their phones, as plots and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.report.charts import Chart, Series
from harness.report.page import Number, Page, Section, Table
from joulefleet.provenance import Origin
from joulefleet.rounding import rounded
from traces.stats import HourlyShare, TraceStats, distribution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from traces import TraceSet

LENGTH_POINTS = 400
_SPREAD = ("mean", "p5", "p25", "p50", "p75", "p95")


def stats_page(traces: TraceSet, stats: TraceStats) -> Page:
    """The page of a trace set."""
    origin = traces.record.provenance.origin
    zone = (
        f"Hours are local; {stats.users_in_utc} of {stats.users} users have no time zone, theirs are UTC."
        if stats.users_in_utc
        else "Hours are the users' local time."
    )
    return Page(
        title=f"Traces: {traces.path.resolve().name}",
        lead=f"{stats.users:,} users, {stats.user_days:,.1f} days on record together.",
        answers=_answers(stats, origin),
        sections=[
            _sessions(stats, origin),
            _hours("Screen on by hour", zone, "screen on", stats.screen, origin),
            _hours("Charging by hour", zone, "charging", stats.plugged, origin),
            _hours("Availability by hour", _policy_text(stats, zone), "available", stats.eligible, origin),
        ],
        facts=_facts(traces),
    )


def _answers(stats: TraceStats, origin: Origin) -> list[str]:
    """How often people are there, and how often a device might train, as far as the traces tell."""
    shares = {"available": stats.eligible, "charging": stats.plugged, "in use": stats.screen}
    known = {what: share.overall for what, share in shares.items() if share.known_s.sum()}
    said = ", ".join(f"{what} {share:.1%}" for what, share in known.items())
    found = [f"Of the time that is on record a phone is {said} ({origin.value})."] if known else []
    spread = dict(spread_rows(stats))
    for name, values in spread.items():
        low, middle, high = (rounded(values[key], 3) for key in ("p25", "p50", "p75"))
        found.append(f"{name.capitalize()}: half lie between {low} and {high}, the median is {middle}.")
    return found


def spread_rows(stats: TraceStats) -> list[tuple[str, dict[str, float]]]:
    """Sessions per day and session length, where the traces tell."""
    found = (
        ("sessions per day and user", distribution(stats.sessions_per_day)),
        ("session length, s", distribution(stats.session_s)),
    )
    return [(name, values) for name, values in found if values is not None]


def hour_rows(stats: TraceStats) -> list[tuple[int, float | None, float | None, float | None]]:
    """Hour, and the shares of screen on, charging and available in it; None where nothing is known."""
    columns = (stats.screen.by_hour, stats.plugged.by_hour, stats.eligible.by_hour)
    screen, plugged, eligible = ([None if np.isnan(v) else v for v in c.tolist()] for c in columns)
    return list(zip(range(24), screen, plugged, eligible, strict=True))


def _policy_text(stats: TraceStats, zone: str) -> str:
    return (
        f"Available means: {stats.policy_text}. The recordings decide it in {stats.decided:.0%} of the "
        f"covered time; shares are of that time. {zone}"
    )


def _sessions(stats: TraceStats, origin: Origin) -> Section:
    rows = spread_rows(stats)
    if not rows:
        return Section("Sessions", text="The traces tell neither when the screen was on nor which app ran.")
    tables = [
        Table(
            headers=["", *_SPREAD],
            rows=[[name, *(Number(values[key], "", origin) for key in _SPREAD)] for name, values in rows],
            caption="p5 to p95 are percentiles, over users and over sessions",
        )
    ]
    return Section(
        "Sessions",
        text=f"{len(stats.session_s):,} sessions: stretches with the screen on (or, without a screen "
        "channel, with an app in the foreground).",
        charts=[_length_chart(stats.session_s, origin)] if len(stats.session_s) else [],
        tables=tables,
    )


def _length_chart(session_s: NDArray[np.float64], origin: Origin) -> Chart:
    """Share of sessions that are at most so long; up to the 95th percentile, or nothing would be seen."""
    ordered = np.sort(session_s)
    length_s = np.linspace(0.0, max(float(np.quantile(ordered, 0.95)), 1.0), LENGTH_POINTS)
    share = np.searchsorted(ordered, length_s, side="right") / len(ordered)
    return Chart(
        title="Session length",
        x_label="length, s",
        y_label="share that are shorter",
        x=length_s,
        series=[Series("share", np.asarray(share, np.float64))],
        origin=origin.value,
    )


def _hours(title: str, text: str, what: str, share: HourlyShare, origin: Origin) -> Section:
    if not share.known_s.sum():
        return Section(title, text=f"The traces do not tell about it: {what} is unknown throughout.")
    by_hour = share.by_hour
    chart = Chart(
        title=title,
        x_label="hour of the day",
        y_label="share of the time",
        x=np.arange(24.0),
        series=[Series(what, by_hour, points=True)],
        origin=origin.value,
    )
    numbers: Sequence[tuple[str, Number]] = [
        (f"{what}, all day", Number(100 * share.overall, "%", origin)),
        ("at most, in one hour", Number(100 * float(np.nanmax(by_hour)), "%", origin)),
        ("at least, in one hour", Number(100 * float(np.nanmin(by_hour)), "%", origin)),
    ]
    return Section(title, text=text, numbers=numbers, charts=[chart])


def _facts(traces: TraceSet) -> dict[str, str]:
    record = traces.record
    facts = {"trace set": record.sha256()[:16], "made": f"{record.created_utc:%Y-%m-%d %H:%M} UTC"}
    if record.provenance.basis:
        facts["from"] = record.provenance.basis
    if record.imported is not None:
        facts["rows read"] = f"{record.imported.rows:,}, of which {record.imported.bad_rows:,} unusable"
    if record.repairs:
        facts["repairs"] = f"{len(record.repairs):,}"
    return facts
