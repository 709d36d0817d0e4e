"""One look per method on every page: a colour that colour-blind readers can tell, and dashes.

The seven colours are Okabe and Ito's (2008) without yellow and black, and a grey for the baseline. Methods
that are often seen together have their own; the others share them with another dash.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

BASELINE_GREY = "#7f8c99"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1")
DASHES: tuple[tuple[int, ...], ...] = ((), (8, 4), (2, 3), (10, 3, 2, 3))
KNOWN = (
    *("fedrank", "oort", "fedrank_plus", "afl", "tifl", "eafl", "refl"),
    *("fedmarl", "power_of_choice", "favor", "fed_cbs", "fedprox", "autofl", "no_probe"),
)
"""Each has the colour of its place, the second seven with dashes."""


@dataclass(frozen=True, slots=True)
class LineStyle:
    """How a method is drawn."""

    color: str
    dash: tuple[int, ...] = ()


def method_style(method: str) -> LineStyle:
    """The look of a method, whatever else is on the page; its variants have other dashes."""
    bare = method.removesuffix(" (oracle)").removesuffix(" (surrogate)").replace(":", " ", 1)
    name, _, options = bare.partition(" ")
    if name == "fedavg":
        return LineStyle(BASELINE_GREY, DASHES[_place(options, len(DASHES))] if options else ())
    place = KNOWN.index(name) if name in KNOWN else 2 * len(COLOURS) + _place(name, 2 * len(COLOURS))
    color, dash = COLOURS[place % len(COLOURS)], place // len(COLOURS)
    if options:
        dash += 1 + _place(options, len(DASHES) - 1)
    return LineStyle(color, DASHES[dash % len(DASHES)])


def _place(text: str, count: int) -> int:
    """The same on every machine and in every process, unlike `hash`."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % count
