"""Facts are written with four digits: more than any of them deserves, and stable across machines."""

from __future__ import annotations


def rounded(value: float) -> float:
    """To four significant digits."""
    return float(f"{value:.4g}")
