"""The map of where probing begins to pay, from its data: ``python docs/results/volatility.py``.

``python docs/results/volatility.py RUN...`` first takes the data anew from runs of `joulefleet experiment run
volatility`: seconds and joules of every round under honest accounting. Prints the table, writes the figure.
"""

from __future__ import annotations

import csv
import gzip
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from joulefleet.interval import Scale, student_interval
from joulefleet.printable import csv_text

HERE = Path(__file__).parent
DATA = HERE / "data" / "volatility.csv.gz"
FIGURE = HERE / "volatility.svg"
COLUMNS = ("volatility", "epochs", "candidates", "method", "seed", "round", "time_s", "energy_j")
TWINS = {"frugal_probe_all": "frugal_forecast_all", "frugal": "frugal_no_probe"}
"""Methods that probe, and the same without."""
SAVES, COSTS, OPEN = "#2f7fb8", "#d9822b", "#e4e7eb"
CELL_W, CELL_H, LEFT, TOP, GAP = 56, 34, 92, 92, 34


@dataclass(frozen=True)
class Cell:
    """What probing changes, in per cent of the twin's: mean over seeds and its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """As the table has it."""
        return f"{self.mean:+.0f} [{self.low:+.0f}, {self.high:+.0f}]"

    @property
    def verdict(self) -> str:
        """The colour: what the interval says."""
        if self.high < 0:
            return SAVES
        return COSTS if self.low > 0 else OPEN


Key = tuple[float, int, int]
"""Volatility, local epochs, candidates; 0 candidates for deciding by value."""


def collect(runs: list[Path]) -> None:
    """Write the data from run folders."""
    import pandas as pd

    rows = []
    for folder in sorted(one.parent for run in runs for one in run.glob("*/*/rounds.parquet")):
        method, _, seed = folder.name.rpartition("_s")
        found = re.fullmatch(r"sd-([0-9p]+)-epochs-(\d+)(?:-m-(\d+))?", folder.parent.name)
        if found is None:
            continue
        cell = (float(found[1].replace("p", ".")), int(found[2]), int(found[3] or 0))
        table = pd.read_parquet(folder / "rounds.parquet").sort_values("round")
        rows += [
            (*cell, method, int(seed), int(r), f"{t:.6g}", f"{j:.6g}")
            for r, t, j in zip(table["round"], table["time_s_honest"], table["energy_j_honest"], strict=True)
        ]
    text = csv_text(COLUMNS, [list(row) for row in sorted(rows)])
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_bytes(gzip.compress(text.encode(), mtime=0))


def read() -> dict[tuple[Key, str], dict[int, tuple[float, float]]]:
    """Mean seconds and joules of a round, by cell and method, then by seed."""
    sums: dict[tuple[Key, str], dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    with gzip.open(DATA, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            key = (float(row["volatility"]), int(row["epochs"]), int(row["candidates"]))
            sums[key, row["method"]][int(row["seed"])].append((float(row["time_s"]), float(row["energy_j"])))
    return {
        key: {seed: tuple(np.mean(rounds, axis=0)) for seed, rounds in seeds.items()}  # type: ignore[misc]
        for key, seeds in sums.items()
    }


def cells() -> dict[Key, tuple[Cell, Cell]]:
    """Time and energy of every cell against its twin, paired by seed."""
    data = read()
    found = {}
    for (key, method), seeds in data.items():
        if method not in TWINS:
            continue
        twin = data[key, TWINS[method]]
        both = sorted(set(seeds) & set(twin))
        found[key] = tuple(_cell([seeds[s][what] / twin[s][what] for s in both]) for what in (0, 1))
    return dict(sorted(found.items()))  # type: ignore[arg-type]


def _cell(ratios: list[float]) -> Cell:
    if max(ratios) - min(ratios) < 1e-9:  # the same on every seed: nothing was probed
        return Cell(*(100 * (ratios[0] - 1),) * 3)
    interval = student_interval(np.array(ratios), Scale.LOG)
    return Cell(*(100 * (value - 1) for value in (interval.mean, interval.low, interval.high)))


def table() -> str:
    """Markdown: a row per volatility and share of the probe."""
    found = cells()
    among = sorted({m for _, _, m in found} - {0})
    header = ["log-sd", "probe's share", *(f"M = {m}: {w}" for m in among for w in ("time %", "energy %"))]
    header += ["by value: time %", "energy %"]
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    for volatility, epochs in sorted({key[:2] for key in found}):
        texts = [f"{volatility:g}", f"1/{epochs}"]
        for m in (*among, 0):
            texts += [cell.text for cell in found[volatility, epochs, m]]
        lines.append("| " + " | ".join(texts) + " |")
    return "\n".join(lines)


def figure() -> str:
    """Two rows of maps, time above energy; a column per M."""
    found = cells()
    among = [*sorted({m for _, _, m in found} - {0}), 0]
    columns, rows = (sorted({key[i] for key in found}) for i in (0, 1))
    panel_w, panel_h = CELL_W * len(columns), CELL_H * len(rows)
    width, height = LEFT + len(among) * (panel_w + GAP), TOP + 2 * (panel_h + GAP + 40)
    parts = [
        _text(LEFT, 24, "Probing against the same method without probes: change of a round, %", 15, "600"),
        _text(LEFT, 44, "blue: saves, orange: costs (95 % intervals); grey: cannot be told", 12),
    ]
    for i, m in enumerate(among):
        for j, what in enumerate(("time", "energy")):
            x, y = LEFT + i * (panel_w + GAP), TOP + j * (panel_h + GAP + 40)
            name = f"M = {m} of 100 probed for 10" if m else "as many as pay (frugal)"
            parts.append(_text(x, y - 8, f"{what}: {name}", 12, "600"))
            for a, volatility in enumerate(columns):
                parts.append(
                    _text(x + a * CELL_W + CELL_W / 2, y + panel_h + 16, f"{volatility:g}", 11, at="middle")
                )
                for b, epochs in enumerate(rows):
                    cell = found[volatility, epochs, m][j]
                    parts.append(_box(x + a * CELL_W, y + b * CELL_H, cell.verdict))
                    dark = "#ffffff" if cell.verdict != OPEN else "#1f2933"
                    middle = (x + (a + 0.5) * CELL_W, y + (b + 0.5) * CELL_H + 4)
                    parts.append(_text(*middle, f"{cell.mean:+.0f}", 12, color=dark, at="middle"))
            parts.append(
                _text(x + panel_w / 2, y + panel_h + 32, "log-sd of a device's time", 11, at="middle")
            )
            if i == 0:
                for b, epochs in enumerate(rows):
                    parts.append(_text(x - 8, y + (b + 0.5) * CELL_H + 4, f"probe 1/{epochs}", 11, at="end"))
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
    return "\n".join([f'{start} role="img" font-family="system-ui, sans-serif">', *parts, "</svg>"]) + "\n"


def _text(
    x: float,
    y: float,
    text: str,
    size: int,
    weight: str = "400",
    *,
    color: str = "#1f2933",
    at: str = "start",
) -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" font-size="{size}" font-weight="{weight}" text-anchor="{at}"'
    return f'<text {place} fill="{color}">{text.replace("&", "&amp;")}</text>'


def _box(x: float, y: float, color: str) -> str:
    place = f'x="{x + 1:.0f}" y="{y + 1:.0f}" width="{CELL_W - 2}" height="{CELL_H - 2}" rx="3"'
    return f'<rect {place} fill="{color}"/>'


def main() -> None:
    """Take the data anew if runs are given; print the table, write the figure."""
    if len(sys.argv) > 1:
        collect([Path(one) for one in sys.argv[1:]])
    FIGURE.write_text(figure(), encoding="utf-8")
    sys.stdout.write(table() + "\n")


if __name__ == "__main__":
    main()
