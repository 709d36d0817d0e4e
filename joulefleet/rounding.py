"""Numbers for people: a few digits, and no powers of ten where one can read the number."""

from __future__ import annotations

LARGEST_WRITTEN_OUT = 1e9


def rounded(value: float, digits: int = 4) -> str:
    """``22,040`` for 22043.7: so many significant digits, thousands apart."""
    short = float(f"{value:.{digits}g}")
    return f"{short:,.10g}" if 1 <= abs(short) < LARGEST_WRITTEN_OUT else f"{short:.{digits}g}"


def signed(value: float) -> str:
    """``+240`` for 239.6: two digits and the direction of a change."""
    return f"{'+' if value >= 0 else ''}{rounded(value, 2)}"
