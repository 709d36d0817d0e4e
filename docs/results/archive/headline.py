"""Draw README's figure from the committed curves; no packages needed."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CURVES = HERE / "table1-curves.csv"
FIGURE = HERE / "table1-headline.svg"
VARIANT = "mnist-lenet5-dir-client"
METHODS = {
    "fedavg": ("FedAvg", "#5b6573"),
    "oort": ("Oort", "#c2571a"),
    "fedmarl": ("FedMarl", "#4d8b31"),
    "fedrank": ("FedRank", "#0b6e8f"),
    "fedrank_plus": ("FedRank+", "#8a3ea8"),
}
PANELS = (("time_s", "virtual time, s"), ("energy_j", "energy of all devices, probing included, J"))
WIDTH, HEIGHT, LEFT, TOP, GAP, BOTTOM = 920, 360, 56, 64, 70, 48
TITLE = "MNIST, LeNet-5, one or two labels per device: test accuracy against what it costs"
NOTE = "emulated; 50 rounds, mean of five seeds, band from the lowest to the highest; every probe is charged"


@dataclass(frozen=True)
class Panel:
    """A rectangle of the figure and the scales of its axes."""

    left: float
    width: float
    x_max: float

    def x(self, value: float) -> float:
        """Pixels from the left."""
        return self.left + self.width * value / self.x_max

    def y(self, accuracy: float) -> float:
        """Pixels from the top."""
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - accuracy)


def main() -> None:
    """Write the figure."""
    with CURVES.open(encoding="utf-8", newline="") as file:
        rows = [
            r for r in csv.DictReader(file) if r["variant"] == VARIANT and r["quantity"] == "test_accuracy"
        ]
    width = (WIDTH - LEFT - GAP - 20) / 2
    parts = [_text(LEFT, 22, TITLE, size=15, weight="600"), _text(LEFT, 41, NOTE, color="#5b6573")]
    for i, (along, label) in enumerate(PANELS):
        here = [r for r in rows if r["along"] == along and r["method"] in METHODS]
        panel = Panel(LEFT + i * (width + GAP), width, max(float(r["x"]) for r in here))
        parts += _frame(panel, label)
        for place, (method, (name, color)) in enumerate(METHODS.items()):
            own = [
                tuple(float(r[k]) for k in ("x", "mean", "low", "high"))
                for r in here
                if r["method"] == method
            ]
            parts += _curve(panel, own, color)
            if i == len(PANELS) - 1:
                parts.append(_key(panel, place, name, color))
    body = "\n".join(parts)
    FIGURE.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="system-ui, sans-serif" role="img" aria-label="{TITLE}">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n',
        encoding="utf-8",
    )


def _frame(panel: Panel, label: str) -> list[str]:
    right, bottom = panel.left + panel.width, panel.y(0)
    parts = []
    for percent in range(0, 101, 20):
        y = panel.y(percent / 100)
        parts.append(f'<path d="M{panel.left:.1f} {y:.1f}H{right:.1f}" stroke="#e2e6ea"/>')
        parts.append(_text(panel.left - 6, y + 4, f"{percent} %", anchor="end"))
    step = _step(panel.x_max)
    ticks = [k * step for k in range(int(panel.x_max / step) + 1)]
    parts += [_text(panel.x(x), bottom + 16, f"{x:,.10g}", anchor="middle") for x in ticks]
    parts.append(_text(panel.left + panel.width / 2, bottom + 36, label, anchor="middle", color="#39424e"))
    return parts


def _step(x_max: float) -> float:
    """A round number that divides the axis into four to eight parts."""
    steps = [m * 10.0**e for e in range(-3, 7) for m in (1, 2, 5)]
    return next(step for step in steps if x_max / step <= 8)


def _curve(panel: Panel, points: list[tuple[float, ...]], color: str) -> list[str]:
    line = " ".join(f"{panel.x(x):.1f},{panel.y(mean):.1f}" for x, mean, _, _ in points)
    edge = [(x, high) for x, _, _, high in points] + [(x, low) for x, _, low, _ in reversed(points)]
    band = " ".join(f"{panel.x(x):.1f},{panel.y(value):.1f}" for x, value in edge)
    return [
        f'<polygon points="{band}" fill="{color}" opacity="0.12"/>',
        f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2" stroke-linejoin="round"/>',
    ]


def _key(panel: Panel, place: int, name: str, color: str) -> str:
    y = panel.y(0) - 16 * (len(METHODS) - place) + 6
    x = panel.left + panel.width - 92
    line = f'<path d="M{x:.1f} {y - 4:.1f}h18" stroke="{color}" stroke-width="2"/>'
    return line + _text(x + 24, y, name, color="#39424e")


def _text(
    x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", color: str = "#39424e",
    weight: str = "400",
) -> str:  # fmt: skip
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="{color}">{text}</text>'
    )


if __name__ == "__main__":
    main()
