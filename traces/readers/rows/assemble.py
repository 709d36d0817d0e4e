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

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from traces.model import InteractionTrace
from traces.readers.rows.channels import ChannelBuilder, ChannelRules
from traces.readers.rows.spool import NameIndex, RecordKind, UserRecords, UserSpool

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
    options: ReaderOptions, report: ImportReport, source: str, licence: str = "", relative_time: bool = False
) -> SourceFacts:
    """Where a trace comes from: what the user says (settings ``source``, ``licence``), else what is known."""
    licence = options.settings.get("licence", licence)
    if not licence:
        report.note("the licence is not stated (setting: licence)")
    return SourceFacts(options.settings.get("source", source), licence, options.time_zone, relative_time)


def assemble_all(
    spool: UserSpool,
    source: SourceFacts,
    report: ImportReport,
    *,
    rules: ChannelRules = LOG_OF_CHANGES,
    apps: tuple[str, ...] = (),
) -> Iterator[InteractionTrace]:
    """The traces of all users; see `assemble`."""
    for user, observed in spool.each():
        trace = assemble(user, observed, source, report, rules=rules, apps=apps)
        if trace is not None:
            yield trace


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
        device=device,
        facts=facts or {},
        **asdict(source),
    )


@dataclass(slots=True)
class UserFacts:
    """What rows say about a user rather than about a time; None or nothing where no row says so.

    Attributes:
        device: Phone model.
        time_zone: IANA name of the user's zone.
        relative_time: Times count from the start of the recording, not from 1970.
    """

    device: str = ""
    time_zone: str = ""
    relative_time: bool | None = None

    def learn(self, other: UserFacts) -> None:
        """Take over what is not known yet: what is said first counts."""
        self.device = self.device or other.device
        self.time_zone = self.time_zone or other.time_zone
        if self.relative_time is None:
            self.relative_time = other.relative_time


NOTHING = UserFacts()


@dataclass(slots=True)
class CollectedRows:
    """The records of every user, and what they refer to.

    Attributes:
        spool: The records.
        apps: Numbers the app names.
        categories: The source's own category of an app, by its number; what is said first counts.
        about: What rows say about a user, by name.
    """

    spool: UserSpool
    apps: NameIndex = field(default_factory=lambda: NameIndex("app"))
    categories: dict[int, str] = field(default_factory=dict)
    about: dict[str, UserFacts] = field(default_factory=dict)

    def learn(self, user: str, about: UserFacts) -> None:
        """Keep what a row says about a user, if it says anything."""
        if about != NOTHING:
            self.about.setdefault(user, UserFacts()).learn(about)

    def traces(
        self, source: SourceFacts, report: ImportReport, rules: ChannelRules
    ) -> Iterator[InteractionTrace]:
        """One trace per user; a user's own zone wins over the one given for all."""
        names = self.apps.all()
        for user, observed in self.spool.each():
            about = self.about.get(user, NOTHING)
            trace = assemble(
                user,
                observed,
                replace(
                    source,
                    time_zone=about.time_zone or source.time_zone,
                    relative_time=bool(about.relative_time),
                ),
                report,
                rules=rules,
                apps=names,
                categories=self.categories,
                device=about.device,
            )
            if trace is not None:
                yield trace
