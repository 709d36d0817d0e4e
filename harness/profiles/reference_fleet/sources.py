"""Facts of the reference fleet that were copied from a page by hand."""

from __future__ import annotations

MACS = {"Alexnet": 0.71e9, "GoogLenet": 1.50e9, "Mobilenet": 0.30e9}
"""torchvision's documentation."""

PARAMETERS = {"Alexnet": 61_000_000, "GoogLenet": 6_800_000, "Mobilenet": 3_400_000}
"""BODT's README."""

BATTERY_V = 3.85
"""Nominal voltage of lithium-ion phone cells, as the makers state it (energy in Wh over charge in Ah)."""

CORES = {"msm8917": 4, "zuma": 9}
"""Where it is not eight."""

WITH_5G = frozenset(
    ("gs101", "gs201", "mt6853t", "sm7225", "sm7250ab", "sm8250", "sm8250ac", "sm8350", "zuma", "zumapro")
)

BATTERY_MAH = {
    "Samsung Galaxy M20": 5000,
    "Samsung Galaxy M21": 6000,
    "Google Pixel 6": 4614,
    "Google Pixel 7 Pro": 5000,
    "Xiaomi Redmi 5A": 3000,
    "Xiaomi Redmi 4X": 4100,
    "Xiaomi Redmi Note 4X": 4100,
    "Google Pixel 2 XL": 3520,
    "Xiaomi Redmi Note 9T": 5000,
    "Xiaomi Redmi 8A": 5000,
    "Sony Xperia 8": 2760,
    "Motorola Moto E (2020)": 3550,
    "Xiaomi Redmi Note 5/Pro": 4000,
    "Xiaomi Redmi Note 7": 4000,
    "Google Pixel 3a": 3000,
    "Realme XT": 4000,
    "Xiaomi Mi Mix 2S": 3400,
    "Xiaomi Poco M3": 6000,
    "Xiaomi Mi A3": 4030,
    "Xiaomi Redmi Note 7 Pro": 4000,
    "Xiaomi Redmi Note 10": 5000,
    "Xiaomi Redmi Note 9S": 5020,
    "Xiaomi Mi 9T": 4000,
    "Google Pixel 4a": 3140,
    "Xiaomi Poco X3": 5160,
    "Xiaomi Mi 10i": 4820,
    "Google Pixel 5": 4080,
    "Asus ZenFone 6": 5000,
    "Asus ROG Phone II": 6000,
    "Xiaomi Mi 10T Pro": 5000,
    "Poco F3": 4520,
    "Xiaomi Mi 11": 4600,
    "Google Pixel 8 Pro": 5050,
    "Google Pixel 9 Pro": 4700,
}
"""mAh. A phone that is not here is not in the fleet."""


def rounded(value: float) -> float:
    """To four significant digits: more than any of the facts deserves, and stable across machines."""
    return float(f"{value:.4g}")
