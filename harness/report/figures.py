"""Figures without axes: a heat map, and bars made of parts. `static/figures.js` draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.report.charts import plain_numbers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
