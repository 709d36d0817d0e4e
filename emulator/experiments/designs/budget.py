"""What a budget of energy or time buys: digits among people and where nothing moves, on seeds of their own.

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
    """The main methods where nothing moves and among people, and FedRank's settings where nothing moves.

    At full size all methods and all seeds, and the week besides.
    """
    if preset is Preset.SMOKE:
        return [VariantPlan(smoke("dir-client"), MAIN, FEW)]
    whole = preset is Preset.PAPER
    static = _static()
    worlds = [static, digits("dir-client"), *([_week()] if whole else [])]
    methods, others = ((*MAIN, *AS_SHOWN), OTHERS) if whole else (MAIN, AS_SHOWN)
    fewer = TEST_SEEDS if whole else TEST_SEEDS[:10]
    few = TEST_SEEDS if whole else TEST_SEEDS[:5]
    return [
        *(VariantPlan(one, methods, TEST_SEEDS, others, fewer) for one in worlds),
        *(VariantPlan(one, ("fedrank",), few) for one in _among(static)),
        VariantPlan(_printed(static), ("fedrank_literal",), few),
    ]


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
