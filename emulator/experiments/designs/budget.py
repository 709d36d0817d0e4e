"""What a budget of energy or time buys: digits and MNIST among people and where nothing moves.

Settings are chosen with development seeds (0 to 9). Test seeds are not run before hypothesis and metrics are
written down (docs/results/preregistered.md).
"""

from __future__ import annotations

from emulator.experiments.designs.sizes import FEW, SPLITS, derived, digits, half_mnist, smoke
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
MNIST = ("fedavg", "no_probe", "frugal", "fedrank", "oort", "fedrank_literal")
MNIST_OTHERS = ("fedrank_plus", "fedrank_frozen", "fedrank:policy=fedrank_still", *OTHERS)
EVERY_S = 7 * 24 * 3600 / 50
"""Between rounds, so that 50 of them see a whole week."""


def variant_plans(preset: Preset) -> list[VariantPlan]:
    """All methods where nothing moves and among people, and FedRank's settings where nothing moves.

    At full size MNIST, and the digits' week besides.
    """
    if preset is Preset.SMOKE:
        return [VariantPlan(smoke("dir-client"), MAIN, FEW)]
    whole = preset is Preset.PAPER
    still = _still(digits("dir-client"), "digits-static")
    few = TEST_SEEDS if whole else TEST_SEEDS[:5]
    methods = (*MAIN, *AS_SHOWN, *OTHERS)
    mnist = [VariantPlan(one, MNIST, TEST_SEEDS[:10], MNIST_OTHERS, TEST_SEEDS[:5]) for one in _mnist()]
    return [
        *(VariantPlan(one, methods, TEST_SEEDS) for one in (digits("dir-client"), still)),
        *(VariantPlan(one, ("fedrank",), few) for one in _among(still)),
        VariantPlan(_printed(still), ("fedrank_literal",), few),
        *([VariantPlan(_week(), methods, TEST_SEEDS), *mnist] if whole else []),
    ]


def _still(variant: Variant, name: str) -> Variant:
    note = "nobody uses the phones, and rounds follow each other at once"
    return derived(
        variant,
        name,
        f"{variant.title}; static",
        {"fleet.traces": None, "protocol.every_s": 0},
        reductions=(*variant.reductions, note),
    )


def _mnist() -> list[Variant]:
    """In the order in which they matter: people and skewed labels, the same without people, equal shares."""
    skewed, equal = half_mnist("dir-client"), half_mnist("iid")
    return [
        _over_a_week(skewed, "mnist-week"),
        _still(skewed, "mnist-static"),
        _over_a_week(equal, "mnist-iid-week"),
    ]


def _over_a_week(variant: Variant, name: str) -> Variant:
    changes = {"protocol.every_s": EVERY_S}
    return derived(variant, name, f"{variant.title}; 50 rounds over seven days", changes)


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
