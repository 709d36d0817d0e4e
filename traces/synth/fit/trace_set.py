"""A usage model from a stored trace set: every channel that the set has.

What no recorded set at hand tells for many people is taken from a publication. Falaki et al., "Diversity in
Smartphone Usage", MobiSys 2010 (255 users): people use their phone 10 to 200 times a day on average, for 10
to 250 s on average; close to 90 % of interactions are with a single app; the relative popularity of a
person's apps falls exponentially; of the categories, communication is the most popular, then browsing, media,
productivity, system, games, maps, others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from joulefleet.errors import DataQualityError
from joulefleet.provenance import Origin
from traces.model import InteractionTrace
from traces.synth.fit.battery import fit_battery
from traces.synth.fit.periods import Periods, bridged, periods_of
from traces.synth.fit.process import fit_processes
from traces.synth.model import AppMix, Channel, ModelSource, Process, UsageModel

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


Traces = Callable[[], Iterable[InteractionTrace]]
"""Gives the traces from the beginning each time; they need not fit into memory."""

GROUPS: tuple[tuple[Channel, ...], ...] = (("screen",), ("plugged", "wifi"), ("available",))


TraceOrigin = Literal[Origin.IMPORTED, Origin.EMULATED]


def fit_set(traces: Traces, name: str, *, origin: TraceOrigin, bridge_h: float = 0.0) -> UsageModel:
    """Fit every channel that the traces have; what they lack, the model lacks.

    The app mix is the one from the literature: app names of other people's sets mean little to a table of
    categories.

    Args:
        traces: Without errors.
        name: Of the model.
        origin: Whether the traces were recorded or generated.
        bridge_h: Gaps of at most this are bridged.

    Raises:
        DataQualityError: There is no channel in which anything changes.
    """
    processes: list[Process] = []
    for group in GROUPS:
        for channels in _recorded(traces, group):
            periods = bridged(periods_of(traces(), channels), bridge_h)
            processes += fit_processes(periods, channels, evidence_of(traces(), periods, origin))
    if not processes:
        raise DataQualityError(
            "no channel to fit: neither screen, charger, Wi-Fi nor availability change in these traces",
            hint="`joulefleet traces show DIR` lists the channels of a set",
        )
    found = {process.channel for process in processes}
    battery = None
    if "plugged" in found:
        evidence = next(process.evidence for process in processes if process.channel == "plugged")
        battery = fit_battery(traces(), evidence)
    return UsageModel(
        name=name,
        processes=tuple(processes),
        battery=battery,
        apps=app_mix() if "screen" in found else None,
    )


def _recorded(traces: Traces, group: tuple[Channel, ...]) -> list[tuple[Channel, ...]]:
    """The whole group if somebody has all of it in one recording, else each channel that changes alone."""
    if _changes(periods_of(traces(), group)):
        return [group]
    alone: list[tuple[Channel, ...]] = [(channel,) for channel in group] if len(group) > 1 else []
    return [channels for channels in alone if _changes(periods_of(traces(), channels))]


def _changes(periods: Periods) -> bool:
    """Whether each of the channels ever changes."""
    seen = periods.next_state >= 0
    turned = (periods.state ^ periods.next_state)[seen]
    return all(bool((turned >> bit & 1).any()) for bit in range(periods.channels))


def evidence_of(traces: Iterable[InteractionTrace], periods: Periods, origin: TraceOrigin) -> ModelSource:
    """Where the periods come from, in the words of the traces."""
    sources: dict[str, None] = {}
    licences: dict[str, None] = {}
    for trace in traces:
        sources[trace.source or "not stated"] = None
        licences[trace.licence or "not stated"] = None
    return ModelSource(
        origin=origin,
        source=_joined(list(sources)),
        licence=_joined(list(licences)),
        users=periods.units,
        user_days=periods.days,
    )


def _joined(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + more
