"""What no recorded set at hand tells for many people, and is therefore taken from a publication.

Falaki et al., "Diversity in Smartphone Usage", MobiSys 2010 (255 users): people use their phone 10 to 200
times a day on average, for 10 to 250 s on average; close to 90 % of interactions are with a single app; the
relative popularity of a person's apps falls exponentially; of the categories, communication is the most
popular, then browsing, media, productivity, system, games, maps, others.
"""

from __future__ import annotations

import math

from joulefleet.provenance import Origin
from traces.synth.model import AppMix, ModelSource

FALAKI = "Falaki et al., Diversity in Smartphone Usage, MobiSys 2010"
FALAKI_USERS = 255
# Expected distance between the smallest and the largest of 255 normal draws, in standard deviations (twice
# the expected maximum, Blom's approximation: the normal quantile at (255 - 0.375) / (255 + 0.25)).
_RANGE_SIGMAS = 2 * 2.815

SCREEN_SIGMA = (
    round(math.log(200 / 10) / _RANGE_SIGMAS, 3),
    round(math.log(250 / 10) / _RANGE_SIGMAS, 3),
)
"""Spread over people of how soon the screen goes on again, and of how long it stays on."""

SCREEN_SPREAD = ModelSource(
    origin=Origin.LITERATURE,
    source=FALAKI,
    users=FALAKI_USERS,
    assumption="log-normal; the reported ranges (10 to 200 a day, 10 to 250 s) are the expected ranges",
)


def app_mix() -> AppMix:
    """Categories of the intensity table in Falaki's order."""
    return AppMix(
        categories=("communication", "browser", "video", "reading", "tools", "game", "maps", "unknown"),
        ratio_low=0.3,
        ratio_high=0.7,
        evidence=ModelSource(
            origin=Origin.LITERATURE,
            source=FALAKI,
            users=FALAKI_USERS,
            assumption="one app per session; each category is 0.3 to 0.7 times as popular as the one before "
            "it (the order and the exponential shape are reported, the ratio is assumed)",
        ),
    )
