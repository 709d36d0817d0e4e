"""How much FedRank depends on the reward's exponents and budgets, and on the number of candidates."""

from __future__ import annotations

from typing import Any

from emulator.experiments.designs.sizes import FEW, FIVE, TEN, derived, digits, full, smoke
from emulator.experiments.plan import Preset, SweptQuantity, Variant, VariantPlan

EXPONENTS = (0, 1, 2, 5)
BUDGETS = (0.5, 1, 2)
CANDIDATES = (15, 20, 30, 50, 100)
SMALL_FLEET = (8, 10, 30)
"""Instead of ``CANDIDATES``, for `smoke`."""
SERIES: dict[SweptQuantity, tuple[float, ...]] = {
    SweptQuantity(quantity="alpha", key="reward.alpha"): EXPONENTS,
    SweptQuantity(quantity="beta", key="reward.beta"): EXPONENTS,
    SweptQuantity(quantity="budgets", key="reward.budget_scale"): BUDGETS,
    SweptQuantity(quantity="candidates", key="protocol.candidates"): CANDIDATES,
}


def variant_plans(preset: Preset) -> list[VariantPlan]:
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
        VariantPlan(base, ("fedavg", "no_probe", "fedrank"), seeds),
        *(VariantPlan(variant, ("fedrank",), seeds) for variant in variants),
    ]


def _fitting(values: tuple[float, ...], base: Variant) -> tuple[float, ...]:
    return SMALL_FLEET if max(values) > base.scenario.fleet.devices else values


def _changed(base: Variant, swept: SweptQuantity, value: Any) -> Variant:
    name = f"{swept.quantity}-{value:g}".replace(".", "p")
    title = f"{base.title}; {swept.quantity} {value:g}"
    return derived(base, name, title, {swept.key: value}, baseline=base.name, swept=swept)
