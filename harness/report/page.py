"""Fills the one template: sections of text, numbers with provenance, tables and charts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.report.charts import Chart, DotPlot, HeatMap, StackedBars
from joulefleet import __version__
from joulefleet.provenance import Origin
from joulefleet.records import write_atomic
from joulefleet.rounding import rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jinja2 import Template


REPORT_FILE = "report.html"


@dataclass(frozen=True, slots=True)
class Number:
    """A number as a reader needs it: value, unit, 95 % interval where known, and where it came from."""

    value: float
    unit: str
    origin: Origin
    half_width: float | None = None

    @property
    def text(self) -> str:
        """``1.234 ± 0.012 J``, rounded to what the interval supports."""
        if self.half_width is None:
            return f"{rounded(self.value)} {self.unit}".strip()
        if self.half_width <= 0:
            return f"{self.value:.6g} ± 0 {self.unit}".strip()
        from math import floor, log10

        digits = max(0, 1 - floor(log10(self.half_width)))
        return f"{self.value:.{digits}f} ± {self.half_width:.{digits}f} {self.unit}".strip()


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
        width = self.number.half_width or 0.0
        values = (self.number.value - width, self.number.value, self.number.value + width)
        low, mean, high = (
            min(100.0, max(0.0, 100 * v / self.full)) if self.full > 0 else 0.0 for v in values
        )
        return round(low, 2), round(mean, 2), round(high, 2)


Figure = Chart | DotPlot | HeatMap | StackedBars
Cell = str | Number | ErrorBar | Origin
"""An origin is shown as a badge: for rows whose numbers share it."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text and numbers."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Fold:
    """A part of a section that can be folded away; charts in it are drawn when it is opened."""

    title: str
    note: str = ""
    charts: Sequence[Figure] = ()
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it, in order: text, key numbers, charts, tables, folds, files."""

    title: str
    text: str = ""
    numbers: Sequence[tuple[str, Number]] = ()
    charts: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    folds: Sequence[Fold] = ()
    files: Sequence[tuple[str, str]] = ()

    def all_charts(self) -> list[Figure]:
        """In the order in which they stand on the page."""
        return [*self.charts, *(chart for fold in self.folds for chart in fold.charts)]


@dataclass(frozen=True, slots=True)
class Page:
    """One report."""

    title: str
    lead: str
    sections: Sequence[Section]
    facts: dict[str, str] = field(default_factory=dict)

    def html(self) -> str:
        """The whole page as one self-contained document."""
        charts = [chart.as_data() for section in self.sections for chart in section.all_charts()]
        return _template().render(
            page=self,
            charts_json=_script_safe(charts),
            uplot_js=_static("uPlot.iife.min.js"),
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
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _static(name: str) -> str:
    return files("harness.report").joinpath("static", name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("harness.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("page.html")
