"""How a method looks: one colour and one kind of dashes, or as a point the shape that goes with these dashes.

Fixed by name: a method that joulefleet has looks the same on every page, and like no other. Variants and
methods of one's own take what is free on their page, beginning with their family's colour. The colours are
five of Okabe and Ito's (2008), a crimson and a violet; their pink and the usual purples look to many
colour-blind readers like our grey and blue. The baseline is grey.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

BASELINE = "fedavg"
BASELINE_GREY = "#7f8c99"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#e40048", "#e69f00", "#56b4e9", "#a03ce0")
DASHES: tuple[tuple[int, ...], ...] = ((), (8, 4), (2, 3), (10, 3, 2, 3), (22, 5), (10, 3, 2, 3, 2, 3, 2, 3))
KNOWN = (
    *("fedrank", "oort", "fedrank_plus", "afl", "tifl", "eafl", "refl"),
    *("fedmarl", "power_of_choice", "autofl", "fed_cbs", "favor", "fedprox", "no_probe"),
    *("frugal", "frugal_no_probe", "frugal_forecast_all", "frugal_probe_all"),
    *("energy_budget", "fedzero", "random_by_size"),
    *("speed_oracle", "fedrank_frozen", "fedrank_minus_i", "fedrank_minus_p", "fedrank_minus_ip"),
    *("fedrank_literal", "harmony_like"),
    *("energy_oracle", "cpow_d", "rpow_d", "fedrank_from_fedmarl", "fedrank_from_oort"),
    *("fedrank_from_harmony_like", "class_coverage_oracle"),
    *("fed_cbs_exact", "refl_oracle"),
)
"""Each has the look of its place: seven colours, then the same with other dashes. Those that are compared
most have colours of their own."""


@dataclass(frozen=True, slots=True)
class LineStyle:
    """How a line is drawn."""

    color: str
    dash: tuple[int, ...] = ()

    @property
    def shape(self) -> int:
        """Of its points: the number of its dashes."""
        return DASHES.index(self.dash)


LOOKS = tuple(LineStyle(color, dash) for dash, color in product(DASHES, COLOURS))
GREYS = tuple(LineStyle(BASELINE_GREY, dash) for dash in DASHES)
FIXED = {BASELINE: GREYS[0], **dict(zip(KNOWN, LOOKS, strict=False))}


def method_looks(methods: Iterable[str]) -> dict[str, LineStyle]:
    """A look for each method of a page; no two are alike as long as there are looks, which are 48."""
    bare = {name: _bare(name) for name in methods}
    found = {name: FIXED[plain] for name, plain in bare.items() if plain in FIXED}
    taken = set(found.values())
    for name in sorted(bare.keys() - found.keys(), key=bare.__getitem__):
        family = FIXED.get(bare[name].partition(" ")[0])
        own = [look for look in (*LOOKS, *GREYS) if family is not None and look.color == family.color]
        order = [*_from(own[1:], name), *_from(LOOKS, name), *GREYS[1:]]
        found[name] = next((look for look in order if look not in taken), order[0])
        taken.add(found[name])
    return found


def _bare(method: str) -> str:
    return method.removesuffix(" (oracle)").removesuffix(" (surrogate)").replace(":", " ", 1)


def _from(looks: tuple[LineStyle, ...] | list[LineStyle], name: str) -> list[LineStyle]:
    """All of them from one on that the name chooses, the same on every machine."""
    if not looks:
        return []
    start = int.from_bytes(hashlib.sha256(_bare(name).encode()).digest()[:4], "big") % len(looks)
    return [*looks[start:], *looks[:start]]
