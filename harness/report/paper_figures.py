"""The figures of a page as SVG and PDF for a paper, drawn by matplotlib from the same data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.report.charts import Chart, DotPlot, HeatMap, Overlay, Scatter, StackedBars
from harness.report.looks import COLOURS
from harness.report.page import Figure, Page
from joulefleet.errors import ConfigError, StorageError
from joulefleet.files import new_file
from joulefleet.install_hint import install_hint
from joulefleet.interval import Interval
from joulefleet.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".svg", ".pdf")
WIDTH_IN = 6.0
MARKERS = "os^DvP"
"""By the number of a method's dashes, as on the page."""
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.linewidth": 0.4,
    "grid.alpha": 0.5,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "joulefleet",
    "pdf.fonttype": 42,
    "text.parse_math": False,
}


def write_figures(page: Page, out: Path) -> list[Path]:
    """Write every figure of a page into a folder, as ``01-title.svg`` and ``.pdf``; replaces older ones."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise ConfigError("figures for a paper need matplotlib", hint=install_hint("plots")) from error
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{out}: {error.strerror or error}") from error
    written = []
    with mpl.rc_context(STYLE):
        for number, (name, figure) in enumerate(_figures(page), start=1):
            canvas = Canvas(figsize=(WIDTH_IN, _height_in(figure)), layout="constrained")
            axes = canvas.add_subplot()
            DRAW[type(figure)](axes, figure)
            axes.set_title(f"{printable(name)} [{figure.origin}]", fontsize=8, loc="left", wrap=True)
            for suffix in SUFFIXES:
                path = out / f"{number:02d}-{_slug(name)}{suffix}"
                # No date: the same data gives the same bytes.
                dateless = {"Date": None} if suffix == ".svg" else {"CreationDate": None}
                with new_file(path, replace=True) as file:
                    canvas.savefig(file, format=suffix[1:], metadata=dateless)
                written.append(path)
    return written


def _figures(page: Page) -> Iterator[tuple[str, Figure]]:
    for section in page.sections:
        yield from section.named_charts()


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:80].strip("-") or "figure"


def _height_in(figure: Figure) -> float:
    if isinstance(figure, HeatMap | StackedBars | DotPlot):
        return 1.2 + 0.28 * len(figure.rows)
    return 3.4


def _chart(axes: Axes, chart: Chart) -> None:
    for i, line in enumerate(chart.series):
        look: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)]}
        if line.style is not None:
            look = {"color": line.style.color}
            if line.style.dash:
                look["linestyle"] = (0, line.style.dash)
        label = printable(line.label)
        if line.half_width is not None:
            axes.errorbar(
                chart.x, line.values, yerr=line.half_width, fmt="o", ms=3, lw=0.8, label=label, **look
            )
            continue
        style = {} if line.line else {"linestyle": "none"}
        width = 0.6 if chart.bands else 1.6
        marker = "o" if line.points else None
        axes.plot(chart.x, line.values, lw=width, marker=marker, ms=3, label=label, **{**look, **style})
        if line.low is not None and line.high is not None:
            axes.fill_between(chart.x, line.low, line.high, color=look["color"], alpha=0.12, lw=0)
    for i, band in enumerate(chart.bands):
        axes.axvspan(band.start, band.end, color="0.5", alpha=0.06 + 0.08 * (i % 2), lw=0)
    axes.set_xlabel(printable(chart.x_label))
    axes.set_ylabel(printable(chart.y_label))
    if len(chart.series) > 1:
        axes.legend(fontsize=7)


def _overlay(axes: Axes, overlay: Overlay) -> None:
    for i, chart in enumerate(overlay.charts):
        x = chart.x - overlay.shift(chart)
        axes.plot(x, chart.series[0].values, lw=0.6, color=COLOURS[i], label=printable(chart.recording))
    axes.set_xlabel(f"time since {printable(overlay.marker)} began (s)")
    axes.set_ylabel(overlay.charts[0].y_label)
    axes.legend(fontsize=7)


def _scatter(axes: Axes, chart: Scatter) -> None:
    for name, (x, y) in chart.points.items():
        style = chart.styles[name]
        axes.errorbar(
            x.mean, y.mean, xerr=_reach(x), yerr=_reach(y), fmt=MARKERS[style.shape], ms=5, lw=1,
            color=style.color, label=printable(name),
        )  # fmt: skip
    front = [chart.points[name] for name in chart.front()]
    axes.plot([x.mean for x, _ in front], [y.mean for _, y in front], ls="--", lw=1, color="0.5", zorder=0)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    axes.legend(fontsize=7)


def _dots(axes: Axes, chart: DotPlot) -> None:
    for i, source in enumerate(chart.sources):
        found = [(r, values[i]) for r, values in enumerate(chart.rows.values()) if values[i] is not None]
        if not found:
            continue
        offset = 0.16 * (i - (len(chart.sources) - 1) / 2)
        for n, (row, value) in enumerate(found):
            if value is not None:
                axes.errorbar(
                    value.mean, row + offset, xerr=_reach(value), fmt="o", ms=4, lw=1.2,
                    color=COLOURS[i % len(COLOURS)], label="_" if n else printable(source),
                )  # fmt: skip
    axes.axvline(0, color="0.4", lw=0.8)
    _rows(axes, list(chart.rows))
    axes.set_xlabel(chart.unit)
    axes.legend(fontsize=7)


def _reach(value: Interval) -> list[list[float]] | None:
    return [[value.mean - value.low], [value.high - value.mean]] if value.known else None


def _stack(axes: Axes, chart: StackedBars) -> None:
    left = np.zeros(len(chart.rows))
    for i, part in enumerate(chart.parts):
        widths = np.array([values[i] for values in chart.rows.values()])
        axes.barh(
            range(len(chart.rows)), widths, left=left, color=COLOURS[i % len(COLOURS)], label=printable(part)
        )
        left += widths
    _rows(axes, list(chart.rows))
    axes.set_xlabel(chart.unit)
    axes.legend(fontsize=6, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.3))


def _heat(axes: Axes, chart: HeatMap) -> None:
    longest = max(map(len, chart.rows.values()))
    cells = np.full((len(chart.rows), longest), np.nan)
    for row, values in enumerate(chart.rows.values()):
        cells[row, : len(values)] = values
    picture = axes.imshow(cells, aspect="auto", cmap="Blues", vmin=0, interpolation="nearest")
    axes.grid(visible=False)
    _rows(axes, list(chart.rows), invert=False)
    axes.set_xlabel(chart.column)
    if axes.figure is not None:
        axes.figure.colorbar(picture, ax=axes, label=chart.unit)


def _rows(axes: Axes, names: list[str], *, invert: bool = True) -> None:
    axes.set_yticks(range(len(names)), [printable(name) for name in names])
    if invert:
        axes.invert_yaxis()


DRAW: dict[type[Any], Any] = {
    Chart: _chart,
    Overlay: _overlay,
    Scatter: _scatter,
    DotPlot: _dots,
    StackedBars: _stack,
    HeatMap: _heat,
}
