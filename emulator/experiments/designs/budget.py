"""What a budget of energy or time buys: digits in the static world and in the week, on seeds of their own.

Settings are chosen with development seeds (0 to 9). Test seeds are not run before hypothesis and metrics are
written down (docs/results/preregistered.md).
"""

from __future__ import annotations

from emulator.experiments.designs.sizes import FEW, SPLITS, derived, digits, smoke
from emulator.experiments.plan import Preset, Variant, VariantPlan
from emulator.scenario.load import load_scenario

TEST_SEEDS = tuple(range(100, 120))
METHODS = ("fedavg", "oort", "fedrank", "fedrank_plus", "no_probe", "frugal")
OTHERS = (
    *("fedprox", "afl", "tifl", "favor", "fedmarl", "eafl", "refl", "fedzero", "energy_budget"),
    *("fedrank_literal", "fedrank_frozen", "fedrank_minus_i", "fedrank_minus_p", "random_by_size"),
)
WEEK = "week-in-use-digits"


def variant_plans(preset: Preset) -> list[VariantPlan]:
    """The main methods in both worlds; at full size all methods."""
    if preset is Preset.SMOKE:
        return [VariantPlan(smoke("dir-client"), METHODS, FEW)]
    others = OTHERS if preset is Preset.PAPER else ()
    return [VariantPlan(world, METHODS, TEST_SEEDS, others, TEST_SEEDS) for world in (_static(), _week())]


def _static() -> Variant:
    variant = digits("dir-client")
    note = "nobody uses the phones, and rounds follow each other at once"
    return derived(
        variant,
        "digits-static",
        f"digits, small MLP; {SPLITS['dir-client']}; static",
        {"fleet.traces": None, "protocol.every_s": 0},
        reductions=(*variant.reductions, note),
    )


def _week() -> Variant:
    scenario = load_scenario(WEEK)
    return Variant(
        name=scenario.name,
        title=f"digits, small MLP; {SPLITS['dir-client']}; a week in use",
        scenario=scenario,
        reductions=(
            "1,797 embedded digits of 8x8 pixels and a small MLP: no task of the paper",
            "1,000 devices, K = 20, 168 rounds",
        ),
    )
