"""From the records of one user to an `InteractionTrace`; the same rules for every format.

What the source says stays as it says it: sessions and spans that overlap, and readings out of order or twice
at one time, are kept and counted; `traces.quality.checks` judges them. Only three things are decided here,
and each is counted in the report:

* Logs of changes are put into the order of time (a stable sort), or there would be no intervals.
* A session of zero length holds no time and is left out.
* A session whose end the source does not say is left out, and the foreground app is unknown from its begin
  to the next record of that phone.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from traces.model import InteractionTrace
from traces.readers.rows.channels import ChannelBuilder, ChannelRules
from traces.readers.rows.records import RecordKind, UserRecords

if TYPE_CHECKING:
    from collections.abc import Mapping

    from traces.readers.base import ImportReport, ReaderOptions

LOG_OF_CHANGES = ChannelRules()


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What a trace says about where it comes from.

    Attributes:
        source: For citation.
        licence: Terms of use.
        time_zone: IANA name, ``""`` if unknown.
        relative_time: Times count from the start of the recording.
    """

    source: str
    licence: str
    time_zone: str = ""
    relative_time: bool = False


def source_facts(
    options: ReaderOptions, source: str, licence: str, *, relative_time: bool = False
) -> SourceFacts:
    """Where a trace comes from: what the user says (settings ``source``, ``licence``), else what is known."""
    return SourceFacts(
        options.settings.get("source", source),
        options.settings.get("licence", licence),
        options.time_zone,
        relative_time,
    )


def assemble(
    user: str,
    observed: UserRecords,
    source: SourceFacts,
    report: ImportReport,
    *,
    rules: ChannelRules = LOG_OF_CHANGES,
    apps: tuple[str, ...] = (),
    categories: Mapping[int, str] = MappingProxyType({}),
    device: str = "",
    facts: Mapping[str, str | float] | None = None,
    limits_ns: tuple[int, int] | None = None,
) -> InteractionTrace | None:
    """The trace of one user; None (and a note) when its records are all at one moment.

    Args:
        user: Name of the trace.
        observed: What the reader saw.
        source: Where it comes from.
        report: Takes the notes.
        rules: How the records are to be taken.
        apps: App names by their numbers.
        categories: The source's own category of an app, by its number.
        device: Phone model.
        facts: Anything else the source says.
        limits_ns: Begin and end of the recording, where the source says; else from the first to the last
            record.
    """
    seen = ChannelBuilder(observed.array(), rules, report, limits_ns)
    if seen.end_ns <= seen.start_ns:
        report.note("users with a single moment, left out")
        return None
    sessions = seen.sessions(apps, categories)
    return InteractionTrace(
        user=user,
        start_ns=seen.start_ns,
        end_ns=seen.end_ns,
        coverage=seen.coverage,
        screen=seen.screen(sessions),
        plugged=seen.fact(RecordKind.PLUGGED, RecordKind.PLUGGED_SPAN),
        available=seen.fact(RecordKind.AVAILABLE, RecordKind.AVAILABLE_SPAN),
        apps=sessions,
        network=seen.network(),
        battery=seen.battery(),
        throughput=seen.throughput(),
        time_zone=source.time_zone,
        relative_time=source.relative_time,
        device=device,
        facts=facts or {},
        source=source.source,
        licence=source.licence,
    )
