"""Charts, heat maps, stacked bars and dot plots as plain data, decimated so that a page stays small.

`static/report.js` draws the charts, `static/figures.js` what has no axes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.report.looks import LineStyle
from harness.results.decimate import min_max_indices
from joulefleet.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

MAX_POINTS = 4_000


@dataclass(frozen=True, slots=True)
class Series:
    """One line: a name with its unit, and a value per x.

    Attributes:
        points: Whether every value is marked.
        line: Whether the values are joined.
        half_width: Of each value, drawn as an error bar.
        low: Lower edge of a shaded ribbon around the line, e.g. the lowest of several runs.
        high: Its upper edge.
        style: Colour and dashes; those of its place among the lines if None.
    """

    label: str
    values: NDArray[np.float64]
    points: bool = False
    line: bool = True
    half_width: NDArray[np.float64] | None = None
    low: NDArray[np.float64] | None = None
    high: NDArray[np.float64] | None = None
    style: LineStyle | None = None


@dataclass(frozen=True, slots=True)
class Band:
    """A shaded stretch of the x axis, e.g. an epoch; ``note`` shows when the mouse is over it."""

    start: float
    end: float
    label: str
    note: str


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart.

    Attributes:
        title: Above the chart.
        x_label: With its unit.
        y_label: With its unit.
        x: Increasing.
        origin: Provenance of the numbers, shown as a badge beside the title.
        bands: Stretches of the x axis with a name.
        max_points: Of each line.
        cells: What two cursors need, see `harness.report.bench.cursor_cells`; None for a chart without them.
        recording: Name of the recording it shows; empty if it shows none. Recordings can be overlaid.
    """

    title: str
    x_label: str
    y_label: str
    x: NDArray[np.float64]
    series: Sequence[Series]
    origin: str
    bands: Sequence[Band] = field(default_factory=tuple)
    max_points: int = MAX_POINTS
    cells: Mapping[str, Any] | None = None
    recording: str = ""

    def as_data(self) -> dict[str, Any]:
        """JSON for the page's script, at most ``max_points`` points a line."""
        keep = min_max_indices([s.values for s in self.series], self.max_points)
        return {
            "xLabel": self.x_label,
            "yLabel": self.y_label,
            "data": [plain_numbers(self.x[keep]), *(plain_numbers(s.values[keep]) for s in self.series)],
            "series": [_series(s, keep) for s in self.series],
            "bands": [{"start": b.start, "end": b.end, "label": b.label, "note": b.note} for b in self.bands],
            **({} if self.cells is None else {"cells": self.cells}),
            **({"recording": self.recording} if self.recording else {}),
        }


@dataclass(frozen=True, slots=True)
class Overlay:
    """Two recordings over each other, shifted so that the same phase begins at nought in both.

    The page's script offers every recording of the page and every phase that both have.

    Attributes:
        title: Above the figure.
        charts: The two that are shown first.
        marker: Label of the band at whose beginning they are aligned.
        origin: Provenance, shown as a badge beside the title.
    """

    title: str
    charts: tuple[Chart, Chart]
    marker: str
    origin: str

    def as_data(self) -> dict[str, Any]:
        """JSON for the page's script, which has the recordings from their own charts."""
        return {"kind": "overlay", "shown": [one.recording for one in self.charts], "marker": self.marker}

    def shift(self, chart: Chart) -> float:
        """Where the phase begins in a chart."""
        return next(band.start for band in chart.bands if band.label == self.marker)


def _series(series: Series, keep: NDArray[np.int64]) -> dict[str, Any]:
    data: dict[str, Any] = {"label": series.label, "points": series.points, "line": series.line}
    if series.style is not None:
        data |= {"color": series.style.color, "dash": list(series.style.dash)}
    if series.half_width is not None:
        data["halfWidth"] = plain_numbers(series.half_width[keep])
    if series.low is not None and series.high is not None:
        data["low"], data["high"] = plain_numbers(series.low[keep]), plain_numbers(series.high[keep])
    return data


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Rows of cells, the darker the larger.

    Attributes:
        title: Above the figure.
        rows: Name to one value per column.
        column: What a column is, e.g. ``device``.
        unit: Of the values.
        origin: Provenance, shown as a badge beside the title.
    """

    title: str
    rows: Mapping[str, NDArray[np.float64]]
    column: str
    unit: str
    origin: str

    def as_data(self) -> dict[str, Any]:
        """JSON for the page's script."""
        rows = [{"label": label, "values": plain_numbers(values)} for label, values in self.rows.items()]
        return {"kind": "heat", "rows": rows, "column": self.column, "unit": self.unit}


@dataclass(frozen=True, slots=True)
class StackedBars:
    """A bar per row, made of parts, all on one scale.

    Attributes:
        title: Above the figure.
        parts: Names of the parts, in order.
        rows: Name to one value per part.
        unit: Of the values.
        origin: Provenance, shown as a badge beside the title.
    """

    title: str
    parts: Sequence[str]
    rows: Mapping[str, Sequence[float]]
    unit: str
    origin: str

    def as_data(self) -> dict[str, Any]:
        """JSON for the page's script."""
        rows = [
            {"label": label, "values": [float(f"{v:.6g}") for v in values]}
            for label, values in self.rows.items()
        ]
        return {"kind": "stack", "parts": list(self.parts), "rows": rows, "unit": self.unit}


@dataclass(frozen=True, slots=True)
class DotPlot:
    """A row of dots with their 95 % intervals, on one scale that shows zero.

    Attributes:
        title: Above the figure.
        sources: What each dot of a row is from, in order.
        rows: Name to one value per source; None where a source says nothing.
        unit: Of the values.
        origin: Provenance, shown as a badge beside the title.
    """

    title: str
    sources: Sequence[str]
    rows: Mapping[str, Sequence[Interval | None]]
    unit: str
    origin: str

    def as_data(self) -> dict[str, Any]:
        """JSON for the page's script: mean, low and high of each dot."""
        rows = [
            {"label": label, "values": [None if v is None else _ends(v) for v in values]}
            for label, values in self.rows.items()
        ]
        return {"kind": "dots", "sources": list(self.sources), "rows": rows, "unit": self.unit}


@dataclass(frozen=True, slots=True)
class Scatter:
    """Two quantities of each method, with intervals; those that no other beats in both are joined.

    Attributes:
        title: Above the figure.
        x_label: With its unit; less is better.
        y_label: With its unit.
        points: Name to the two values.
        styles: Name to look.
        origin: Provenance, shown as a badge beside the title.
        more_is_better: Of the second quantity.
    """

    title: str
    x_label: str
    y_label: str
    points: Mapping[str, tuple[Interval, Interval]]
    styles: Mapping[str, LineStyle]
    origin: str
    more_is_better: bool = True

    def front(self) -> list[str]:
        """Methods that no other beats in both, from the cheapest on."""
        found: list[str] = []
        best = -np.inf
        sign = 1 if self.more_is_better else -1
        good = {name: (x.mean, sign * y.mean) for name, (x, y) in self.points.items()}
        for name, (_, value) in sorted(good.items(), key=lambda one: (one[1][0], -one[1][1])):
            if value > best:
                found.append(name)
                best = value
        return found

    def as_data(self) -> dict[str, Any]:
        """JSON for the page's script."""
        points = [
            {"label": name, "x": _ends(x), "y": _ends(y), "color": style.color, "shape": style.shape}
            for name, (x, y) in self.points.items()
            for style in (self.styles[name],)
        ]
        return {
            "kind": "scatter",
            "points": points,
            "front": self.front(),
            "xLabel": self.x_label,
            "yLabel": self.y_label,
        }


def _ends(interval: Interval) -> list[float | None]:
    return plain_numbers(np.array([interval.mean, interval.low, interval.high]))


def plain_numbers(values: NDArray[np.float64]) -> list[float | None]:
    """Six digits are more than a screen shows; NaN becomes a hole in the line."""
    return [None if not np.isfinite(v) else float(f"{v:.6g}") for v in values.tolist()]
