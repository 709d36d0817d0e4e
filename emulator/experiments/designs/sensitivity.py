"""How much FedRank depends on the reward's exponents and budgets, and on the number of candidates."""

from __future__ import annotations

from typing import Any

from emulator.experiments.designs.sizes import FEW, FIVE, TEN, derived, digits, full, smoke
from emulator.experiments.plan import Cast, Preset, Swept, Variant

EXPONENTS = (0, 1, 2, 5)
BUDGETS = (0.5, 1, 2)
CANDIDATES = (15, 20, 30, 50, 100)
SMALL_FLEET = (8, 10, 30)
"""Instead of ``CANDIDATES``, for `smoke`."""
SERIES: dict[Swept, tuple[float, ...]] = {
    Swept(quantity="alpha", key="reward.alpha"): EXPONENTS,
    Swept(quantity="beta", key="reward.beta"): EXPONENTS,
    Swept(quantity="budgets", key="reward.budget_scale"): BUDGETS,
    Swept(quantity="candidates", key="protocol.candidates"): CANDIDATES,
}


def casts(preset: Preset) -> list[Cast]:
    """One quantity at a time around the defaults; FedAvg, which sees none of them, once."""
    base, seeds = {
        Preset.SMOKE: (smoke("dir-client"), FEW),
        Preset.LAPTOP: (digits("dir-client"), FIVE),
        Preset.PAPER: (full("mnist-lenet5", "dir-client"), TEN),
    }[preset]
    variants = [
        _changed(base, swept, value)
        for swept, values in SERIES.items()
        for value in _fitting(values, base)
        if value != swept.value(base.scenario)  # that one is the base
    ]
    return [
        Cast(base, ("fedavg", "fedrank"), seeds),
        *(Cast(variant, ("fedrank",), seeds) for variant in variants),
    ]


def _fitting(values: tuple[float, ...], base: Variant) -> tuple[float, ...]:
    return SMALL_FLEET if max(values) > base.scenario.fleet.devices else values


def _changed(base: Variant, swept: Swept, value: Any) -> Variant:
    name = f"{swept.quantity}-{value:g}".replace(".", "p")
    title = f"{base.title}; {swept.quantity} {value:g}"
    return derived(base, name, title, {swept.key: value}, baseline=base.name, swept=swept)
