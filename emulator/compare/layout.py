"""Rows of cells as aligned text, Markdown or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

Cells = Sequence[str]


def aligned(header: Cells, rows: Sequence[Cells]) -> list[str]:
    """Lines for a terminal, columns under each other."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in (header, *rows)]


def piped(header: Cells, rows: Sequence[Cells]) -> str:
    """A Markdown table."""
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        for cells in (header, ["---"] * len(header), *rows)
    )


def comma_separated(header: Cells, rows: Iterable[Sequence[Any]]) -> str:
    """A CSV file; ``None`` is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()
