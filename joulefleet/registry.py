"""Things found by name: built in, or offered by an installed package through an entry point."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar, cast

from joulefleet.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """One named thing, not yet imported.

    Attributes:
        name: What users type.
        target: ``module:attribute``.
        summary: One line for listings, known without importing.
        source: ``joulefleet`` or the distribution that offers it.
    """

    name: str
    target: str
    summary: str = ""
    source: str = "joulefleet"


@dataclass(slots=True)
class Registry(Generic[T]):
    """A closed table of built-in names plus an open entry-point group.

    Nothing is imported until a name is used, so listing is cheap and import order never matters.

    Args:
        what: What one thing is called in messages, e.g. ``power meter``.
        group: The entry-point group, e.g. ``joulefleet.power_meters``.
        builtin: Name to ``(target, summary)``.
        given: What this process was handed as objects: code that the user named (`give`).
    """

    what: str
    group: str
    builtin: dict[str, tuple[str, str]] = field(default_factory=dict)
    given: dict[str, tuple[T, str]] = field(default_factory=dict)

    def give(self, name: str, thing: T, source: str) -> None:
        """Make a thing known by name, in this process only.

        Raises:
            ConfigError: Another one has that name.
        """
        self.check_free(name, source)
        self.given[name] = thing, source

    def check_free(self, name: str, source: str) -> None:
        """Refuse a name that belongs to something else than what ``source`` gave before."""
        known = self.entries().get(name)
        if known is not None and (name not in self.given or known.source != source):
            raise ConfigError(
                f"{source}: a {self.what} called {name!r} is there already, from {known.source}",
                hint="give yours another name",
            )

    def entries(self) -> dict[str, Entry]:
        """All known names; a built-in one cannot be replaced by a plug-in."""
        found = {
            point.name: Entry(point.name, point.value, source=point.dist.name if point.dist else "?")
            for point in entry_points(group=self.group)
        }
        found.update({name: Entry(name, "", source=source) for name, (_, source) in self.given.items()})
        found.update({name: Entry(name, *rest) for name, rest in self.builtin.items()})
        return dict(sorted(found.items()))

    def load(self, name: str) -> T:
        """Import and return the thing called ``name``.

        Raises:
            ConfigError: The name is unknown (the known ones are listed) or cannot be imported.
        """
        if name in self.given:
            return self.given[name][0]
        entry = self.find(name)
        try:
            return cast("T", EntryPoint(name, entry.target, self.group).load())
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"{self.what} {name!r} from {entry.source} cannot be loaded: {error}"
            ) from error

    def find(self, name: str) -> Entry:
        """What is called ``name``, not yet imported.

        Raises:
            ConfigError: Nothing is; what is known is listed.
        """
        if name in self.builtin:  # no look at what is installed, which takes milliseconds a package
            return Entry(name, *self.builtin[name])
        entries = self.entries()
        if name not in entries:
            near = difflib.get_close_matches(name, entries, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ConfigError(
                f"no {self.what} called {name!r}", hint=f"{hint}known: {', '.join(entries) or 'none'}"
            )
        return entries[name]
