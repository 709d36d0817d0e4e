"""The rows of all tables of a source, collected user by user until the traces are made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from traces.readers.rows.assemble import SourceFacts, assemble
from traces.readers.rows.spool import NameIndex, UserSpool

if TYPE_CHECKING:
    from traces.model import InteractionTrace
    from traces.readers.base import ImportReport
    from traces.readers.rows.channels import ChannelRules


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
