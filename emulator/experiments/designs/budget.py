"""What a budget of energy or time buys: digits in the static world and in the week, on seeds of their own.

Settings are chosen with development seeds (0 to 9). Test seeds are not run before hypothesis and metrics are
written down (docs/results/preregistered.md).
"""

from __future__ import annotations

from emulator.experiments.designs.sizes import FEW, SPLITS, derived, digits, smoke
from emulator.experiments.plan import Preset, Variant, VariantPlan
from emulator.scenario.load import load_scenario

TEST_SEEDS = tuple(range(100, 120))
CONTROLS = ("fedavg", "no_probe")
MAIN = (*CONTROLS, "frugal", "fedrank", "oort", "fedrank_plus")
AS_SHOWN = ("fedrank_literal", "fedrank_frozen", "fedrank:policy=fedrank_still")
"""FedRank as printed, without learning online, and from the policy of the static world."""
OTHERS = (
    *("fedprox", "afl", "tifl", "favor", "fedmarl", "eafl", "refl", "refl_oracle", "fedzero"),
    *("energy_budget", "fedrank_minus_i", "fedrank_minus_p", "random_by_size"),
)
WEEK = "week-in-use-digits"
PRINTED = {"reward.function": "literal", "reward.budgets": "best_30"}
FEWER, ALL = 15, 100
"""Candidates instead of 3 K = 30, where N = 100."""


def variant_plans(preset: Preset) -> list[VariantPlan]:
    """The main methods in both worlds; at full size all methods, and FedRank's settings in one."""
    if preset is Preset.SMOKE:
        return [VariantPlan(smoke("dir-client"), MAIN, FEW)]
    others = OTHERS if preset is Preset.PAPER else ()
    static, week = _static(), _week()
    found = [VariantPlan(one, (*MAIN, *AS_SHOWN), TEST_SEEDS, others, TEST_SEEDS) for one in (static, week)]
    if preset is Preset.PAPER:
        found += [VariantPlan(one, ("fedrank",), TEST_SEEDS) for one in _among(static)]
        found.append(VariantPlan(_printed(static), ("fedrank_literal",), TEST_SEEDS))
    return found


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


def _among(base: Variant) -> list[Variant]:
    return [
        derived(
            base,
            f"{base.name}-m{m}",
            f"{base.title}; M = {m}",
            {"protocol.candidates": m},
            baseline=base.name,
        )
        for m in (FEWER, ALL)
    ]


def _printed(base: Variant) -> Variant:
    note = "the reward as printed, with budgets among the best 30 %"
    return derived(
        base,
        f"{base.name}-printed",
        f"{base.title}; {note}",
        PRINTED,
        baseline=base.name,
        reductions=(*base.reductions, note),
    )
