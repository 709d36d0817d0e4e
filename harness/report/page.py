"""Fills the one template: sections of text, numbers with provenance, tables and charts."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.report.charts import Chart, DotPlot, HeatMap, Overlay, Scatter, StackedBars
from joulefleet import __version__
from joulefleet.budgets import RECORD_BYTES, OverBudget, read_bounded
from joulefleet.errors import StorageError
from joulefleet.files import write_atomic
from joulefleet.interval import Interval, Scale
from joulefleet.printable import printable, printable_data
from joulefleet.provenance import Origin
from joulefleet.rounding import rounded
from joulefleet.runstore.notes import RunNote

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from jinja2 import Template
    from markupsafe import Markup


REPORT_FILE = "report.html"
WITH_INTERVAL = re.compile(
    r"(?P<mean>[-+>= \d.,e]+) (?P<interval>(\[[-+ \d.,e]+\]|\([-+\d.,e]+ and [-+\d.,e]+\))( \(\d+/\d+\))?)"
)
"""As `Interval.text` writes it."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number as a reader needs it: value, unit, 95 % interval where known, and where it came from.

    Attributes:
        scale: Of what it is a number of: linear for what may be negative.
    """

    value: float
    unit: str
    origin: Origin
    half_width: float | None = None
    scale: Scale = Scale.LOG

    @property
    def text(self) -> str:
        """``1.234 ± 0.012 J``, rounded to what the interval supports; its ends where it is wide."""
        if self.half_width is None:
            return f"{rounded(self.value)} {self.unit}".strip()
        return f"{self.interval.plus_minus()} {self.unit}".strip()

    @property
    def interval(self) -> Interval:
        """Both ends; the value itself where no interval is known."""
        # Shares are shown in percent, but their scales are those of shares.
        factor = 100.0 if self.scale in (Scale.LOGIT, Scale.SAVED) else 1.0
        half_width = (self.half_width or 0.0) / factor
        found = Interval.measured(self.value / factor, half_width, self.scale).times(factor)
        return found if found.known else Interval(self.value, self.value, self.value)


@dataclass(frozen=True, slots=True)
class ErrorBar:
    """A number as a bar with its interval; its row says where it came from.

    Attributes:
        number: The number.
        full: The value of a bar of full length, the same for all bars that are to be compared.
    """

    number: Number
    full: float

    @property
    def ends(self) -> tuple[float, float, float]:
        """Lower end of the interval, mean and upper end in percent of the full length."""
        found = self.number.interval
        low, mean, high = (
            min(100.0, max(0.0, 100 * v / self.full)) if self.full > 0 else 0.0
            for v in (found.low, found.mean, found.high)
        )
        return round(low, 2), round(mean, 2), round(high, 2)


Figure = Chart | DotPlot | HeatMap | Overlay | Scatter | StackedBars
Cell = str | Number | ErrorBar | Origin
"""An origin is shown as a badge: for rows whose numbers share it."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text and numbers. An origin that all share is shown once, above the table.

    Attributes:
        headers: Of the columns.
        rows: Their cells.
        caption: Above the table.
        best: Numbers of the rows that are marked.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    best: Container[int] = ()

    def shown(self) -> tuple[Table, list[tuple[str, Origin]]]:
        """The table without origins that are the same in every row, and what they are."""
        common = {
            i: row[i]
            for row in self.rows[:1]
            for i in range(len(row))
            if isinstance(row[i], Origin) and all(other[i] == row[i] for other in self.rows)
        }
        numbers = {cell.origin for row in self.rows for cell in row if isinstance(cell, Number)}
        if not common and len(numbers) == 1:
            plain = [[c.text if isinstance(c, Number) else c for c in row] for row in self.rows]
            return replace(self, rows=plain), [("", numbers.pop())]
        if not common:
            return self, []
        headers = [header for i, header in enumerate(self.headers) if i not in common]
        rows = [[cell for i, cell in enumerate(row) if i not in common] for row in self.rows]
        said = [(self.headers[i], origin) for i, origin in common.items() if isinstance(origin, Origin)]
        return replace(self, headers=headers, rows=rows), said


@dataclass(frozen=True, slots=True)
class Fold:
    """A part of a section that can be folded away; charts in it are drawn when it is opened."""

    title: str
    note: str = ""
    charts: Sequence[Figure] = ()
    is_open: bool = False
    tables: Sequence[Table] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it, in order: text, key numbers, charts, tables, folds, files.

    Attributes:
        small_print: How to read it, folded away below the text.
        folded: Whether all of it is folded away: for those who want to know exactly.
    """

    title: str
    text: str = ""
    numbers: Sequence[tuple[str, Number]] = ()
    charts: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    folds: Sequence[Fold] = ()
    files: Sequence[tuple[str, str]] = ()
    small_print: str = ""
    folded: bool = False

    @property
    def one_origin(self) -> bool:
        """Whether all key numbers share it: then the first alone says so."""
        return len({number.origin for _, number in self.numbers}) == 1

    def all_charts(self) -> list[Figure]:
        """In the order in which they stand on the page."""
        return [*self.charts, *(chart for fold in self.folds for chart in fold.charts)]

    def named_charts(self) -> list[tuple[str, Figure]]:
        """Likewise, each with a name that says which fold it is of: many folds hold charts of one title."""
        inside = [(fold.title, chart) for fold in self.folds for chart in fold.charts]
        return [
            *((chart.title, chart) for chart in self.charts),
            *((chart.title if chart.title == of else f"{of}: {chart.title}", chart) for of, chart in inside),
        ]

    def all_tables(self) -> list[Table]:
        """Likewise."""
        return [*self.tables, *(table for fold in self.folds for table in fold.tables)]


@dataclass(frozen=True, slots=True)
class Page:
    """One report: the answer, then the figure that shows it, then the rest.

    Attributes:
        title: Of the page.
        lead: What was done, in small below the answers.
        answers: What was found, a sentence each, with its uncertainty.
        facts: How it was made.
        notes: What people wrote about it, newest last.
    """

    title: str
    lead: str
    sections: Sequence[Section]
    facts: dict[str, str] = field(default_factory=dict)
    answers: Sequence[str] = ()
    notes: Sequence[RunNote] = ()

    def html(self) -> str:
        """The whole page as one self-contained document."""
        charts = [chart.as_data() for section in self.sections for chart in section.all_charts()]
        return _template().render(
            page=self,
            charts_json=_script_safe(charts),
            uplot_js=f"/*! {_static('uPlot.LICENSE')} */\n{_static('uPlot.iife.min.js')}",
            uplot_css=_static("uPlot.min.css"),
            style=_static("report.css") + _static("figures.css"),
            script=_static("figures.js") + _static("report.js"),
            version=__version__,
            kind_of=lambda value: type(value).__name__,
        )

    def write(self, path: Path, *, replace: bool = False) -> Path:
        """Store the page; refuses to overwrite unless ``replace``."""
        write_atomic(path, self.html().encode(), replace=replace)
        return path


def _script_safe(data: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(printable_data(data), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _seen(value: Any) -> Any:
    """Names on a page are seen as they are: no character of them turns the line around or hides."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return printable(value, keep="\n\t") if is_text else value


def _cell_text(text: str) -> str | Markup:
    """An interval stands below its mean, in small: columns stay narrow."""
    from markupsafe import Markup

    found = WITH_INTERVAL.fullmatch(text)
    if found is None:
        return text
    return Markup('{}<span class="interval">{}</span>').format(found["mean"], found["interval"])


def text_of(path: Path) -> str:
    """A file that somebody wrote, to be shown: bytes that are no text show as such.

    Raises:
        StorageError: It is larger than any that people write.
    """
    try:
        return read_bounded(path, RECORD_BYTES).decode(errors="replace")
    except OverBudget as error:
        raise StorageError(f"{path}: {error}") from error


def _static(name: str) -> str:
    return files("harness.report").joinpath("static", name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("harness.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_seen,
    )
    environment.filters["cell"] = _cell_text
    return environment.get_template("page.html")
