"""What a page shows as plain tables, for `joulefleet export`: its own tables, key numbers and figures.

A part of a page that has no entry here cannot be exported, and a test fails for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from harness.report.charts import Chart, DotPlot, HeatMap, Overlay, Scatter, StackedBars
from harness.report.page import Cell, ErrorBar, Number, Page, Section, Table
from harness.results.tables import Row, RunTable
from joulefleet.interval import Interval
from joulefleet.provenance import Origin

PREFIX = "page"
"""Files of a page's parts begin with it; the others hold what was measured, row by row."""

INTERVAL: dict[str, type] = {"mean": float, "low": float, "high": float}
NUMBER: dict[str, type] = {**INTERVAL, "unit": str, "origin": str}


def page_tables(page: Page) -> list[RunTable]:
    """Every part of a page that holds numbers or text, in the order of the page."""
    said: list[Row] = [{"part": "answer", "text": text} for text in page.answers]
    said += [{"part": "lead", "text": page.lead}]
    said += [{"part": "note", "text": note.text, "about": note.job} for note in page.notes]
    said += [{"part": "fact", "about": name, "text": text} for name, text in page.facts.items()]
    for section in page.sections:
        said += [{"part": "text", "about": section.title, "text": section.text}] if section.text else []
    found: list[tuple[str, str, dict[str, type], list[Row]]] = [
        ("", "said", {"part": str, "about": str, "text": str}, said)
    ]
    for section in page.sections:
        found += [(section.title, *part) for part in _parts(section)]
    return [
        RunTable(f"{PREFIX}_{number:02d}_{_slug(f'{section} {name}')}", columns, rows)
        for number, (section, name, columns, rows) in enumerate(found)
    ]


Part = tuple[str, dict[str, type], list[Row]]


def _parts(section: Section) -> Iterator[Part]:
    if section.numbers:
        columns = {"name": str, **NUMBER}
        rows = [{"name": name, **_number(number)} for name, number in section.numbers]
        yield "numbers", columns, rows
    for table in section.all_tables():
        yield table.caption[:40] or "table", *_table(table)
    for name, figure in section.named_charts():
        yield name, *FIGURES[type(figure)](figure)


SLUG_CHARS = 90
"""Of a name: room for a section, a job and what is shown of it."""


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:SLUG_CHARS].strip("_")


def _number(number: Number) -> Row:
    ends = number.interval
    known = number.half_width is not None
    return {
        "mean": number.value,
        "low": ends.low if known else None,
        "high": ends.high if known else None,
        "unit": number.unit,
        "origin": number.origin.value,
    }


def _table(table: Table) -> tuple[dict[str, type], list[Row]]:
    """Text as it stands; of a number also its value, its ends and its unit in columns of their own."""
    names = _apart(table.headers)
    numeric = [
        i for i in range(len(names)) if any(isinstance(row[i], Number | ErrorBar) for row in table.rows)
    ]
    columns: dict[str, type] = {}
    for i, name in enumerate(names):
        columns[name] = str
        if i in numeric:
            columns |= {
                f"{name}_{end}": kind for end, kind in {**INTERVAL, "unit": str, "origin": str}.items()
            }
    if table.best:
        columns["best"] = bool
    return columns, [_row(names, row, table.best, i) for i, row in enumerate(table.rows)]


def _row(names: Sequence[str], cells: Sequence[Cell], best: Any, place: int) -> Row:
    row: Row = {"best": place in best} if best else {}
    for name, cell in zip(names, cells, strict=True):
        if isinstance(cell, Number | ErrorBar):
            number = cell.number if isinstance(cell, ErrorBar) else cell
            row[name] = number.text
            row |= {f"{name}_{end}": value for end, value in _number(number).items()}
        else:
            row[name] = cell.value if isinstance(cell, Origin) else cell
    return row


def _apart(headers: Sequence[str]) -> list[str]:
    """Names of columns, none twice."""
    names: list[str] = []
    for header in headers:
        name, n = header or "column", 2
        while name in names:
            name, n = f"{header} {n}", n + 1
        names.append(name)
    return names


def _chart(chart: Chart) -> tuple[dict[str, type], list[Row]]:
    """One row per point of each line, as drawn; bands are rows of their own.

    Of a recording only the bands: ``power`` beside it has the samples, and more of them.
    """
    data = chart.as_data() if not chart.recording else {"data": [[]], "series": []}
    columns = {"line": str, "x": float, "y": float, "low": float, "high": float, "band": str, "note": str}
    rows: list[Row] = []
    for values, series in zip(data["data"][1:], data["series"], strict=True):
        widths = series.get("halfWidth") or [None] * len(values)
        lows = series.get("low") or [_minus(v, w, -1) for v, w in zip(values, widths, strict=True)]
        highs = series.get("high") or [_minus(v, w, 1) for v, w in zip(values, widths, strict=True)]
        rows += [
            {"line": series["label"], "x": x, "y": y, "low": low, "high": high}
            for x, y, low, high in zip(data["data"][0], values, lows, highs, strict=True)
        ]
    rows += [
        {"band": band.label, "x": band.start, "low": band.start, "high": band.end, "note": band.note}
        for band in chart.bands
    ]
    return columns, rows


def _minus(value: float | None, width: float | None, sign: int) -> float | None:
    return None if value is None or width is None else value + sign * width


def _dots(figure: DotPlot) -> tuple[dict[str, type], list[Row]]:
    rows = [
        {"row": label, "source": source, "unit": figure.unit, **_ends(value)}
        for label, values in figure.rows.items()
        for source, value in zip(figure.sources, values, strict=True)
        if value is not None
    ]
    return {"row": str, "source": str, "unit": str, **INTERVAL}, rows


def _scatter(figure: Scatter) -> tuple[dict[str, type], list[Row]]:
    front = figure.front()
    rows = [
        {"name": name, "on_front": name in front}
        | {f"x_{end}": value for end, value in _ends(x).items()}
        | {f"y_{end}": value for end, value in _ends(y).items()}
        for name, (x, y) in figure.points.items()
    ]
    ends: dict[str, type] = {f"{axis}_{end}": float for axis in "xy" for end in INTERVAL}
    return {"name": str, "on_front": bool, **ends}, rows


def _cells(figure: HeatMap) -> tuple[dict[str, type], list[Row]]:
    rows = [
        {"row": label, figure.column: place, "value": float(value), "unit": figure.unit}
        for label, values in figure.rows.items()
        for place, value in enumerate(values)
    ]
    return {"row": str, figure.column: int, "value": float, "unit": str}, rows


def _bars(figure: StackedBars) -> tuple[dict[str, type], list[Row]]:
    rows = [
        {"row": label, "part": part, "value": float(value), "unit": figure.unit}
        for label, values in figure.rows.items()
        for part, value in zip(figure.parts, values, strict=True)
    ]
    return {"row": str, "part": str, "value": float, "unit": str}, rows


def _overlay(figure: Overlay) -> tuple[dict[str, type], list[Row]]:
    """Which recordings, and by how much each is shifted; their samples are those of their own charts."""
    rows = [
        {"recording": chart.recording, "aligned_at": figure.marker, "shift_s": figure.shift(chart)}
        for chart in figure.charts
    ]
    return {"recording": str, "aligned_at": str, "shift_s": float}, rows


def _ends(value: Interval) -> Row:
    known = value.known
    return {"mean": value.mean, "low": value.low if known else None, "high": value.high if known else None}


FIGURES: dict[type[Any], Callable[[Any], tuple[dict[str, type], list[Row]]]] = {
    Chart: _chart,
    DotPlot: _dots,
    HeatMap: _cells,
    Overlay: _overlay,
    Scatter: _scatter,
    StackedBars: _bars,
}
