"""How much of a phone a foreground app takes: app name -> category -> CPU and memory intensity.

The default table (`data/app_intensity.toml`) is small and says for every row where its numbers come from.
Users replace it with a file of their own. What is measured wins: an intensity in the trace itself over an
``[[app]]`` row, that over the source's own category, that over the table's category for the name.
"""

from __future__ import annotations

from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from joulefleet.config import ClosedModel, load_toml, parse_toml
from joulefleet.provenance import Origin
from joulefleet.records import StoredRecord


class IntensityRow(ClosedModel):
    """One line of the table.

    Attributes:
        name: Of the category or app.
        cpu: float of all cores in use, 0 to 1.
        memory: float of RAM in use, 0 to 1.
        kind: How the numbers came to be; an assumption is stated as one.
        basis: From where, or why.
    """

    name: str = Field(min_length=1)
    cpu: float = Field(ge=0, le=1)
    memory: float = Field(ge=0, le=1)
    kind: Literal["measured", "literature", "assumption"]
    basis: str = Field(min_length=1)

    @property
    def origin(self) -> Origin:
        """What a number computed with this row may claim: an assumption is at best literature."""
        return Origin.IMPORTED if self.kind == "measured" else Origin.LITERATURE


class IntensityTable(StoredRecord):
    """The whole table.

    Attributes:
        category: One row per category.
        app: Rows for single apps; they win over the app's category.
        apps: App name to category, case-insensitive; a name ending in "." covers every package below it.
        unknown_category: For an app that nothing here covers.
        screen_on_category: For a screen that is on while the app was not recorded.
    """

    name: str = Field(min_length=1)
    unknown_category: str
    screen_on_category: str
    category: tuple[IntensityRow, ...]
    app: tuple[IntensityRow, ...] = ()
    apps: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_resolve(self) -> IntensityTable:
        known = [row.name for row in self.category]
        if len(set(known)) != len(known):
            raise ValueError("category: a name appears twice")
        used = {self.unknown_category, self.screen_on_category, *self.apps.values()}
        if missing := sorted(used - set(known)):
            raise ValueError(f"no [[category]] called {', '.join(missing)}")
        return self

    @cached_property
    def _categories(self) -> dict[str, IntensityRow]:
        return {row.name: row for row in self.category}

    @cached_property
    def _app_rows(self) -> dict[str, IntensityRow]:
        return {row.name.lower(): row for row in self.app}

    @cached_property
    def _by_name(self) -> dict[str, str]:
        return {name.lower(): category for name, category in self.apps.items()}

    def category_of(self, app: str, given: str = "") -> str:
        """The category of an app; ``given`` is what the source says, used if the table has that category."""
        if given in self._categories:
            return given
        name = app.lower()
        if name in self._by_name:
            return self._by_name[name]
        parts = name.split(".")
        for n in range(len(parts) - 1, 0, -1):
            prefix = ".".join(parts[:n]) + "."
            if prefix in self._by_name:
                return self._by_name[prefix]
        return self.unknown_category

    def row(self, app: str, given: str = "") -> IntensityRow:
        """The row that applies to an app."""
        return self._app_rows.get(app.lower()) or self._categories[self.category_of(app, given)]

    @property
    def screen_on(self) -> IntensityRow:
        """The row for a screen that is on with nothing known about the app."""
        return self._categories[self.screen_on_category]


@cache
def default_table() -> IntensityTable:
    """The table that ships with joulefleet."""
    resource = files("traces").joinpath("data", "app_intensity.toml")
    return parse_toml(resource.read_text(encoding="utf-8"), IntensityTable, name="app_intensity.toml")


def load_table(path: Path | None) -> IntensityTable:
    """A user's table, or the default one."""
    return default_table() if path is None else load_toml(path, IntensityTable)
