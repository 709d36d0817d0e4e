"""Updates weighed by size, or 1/K each as the appendix prints it, where labels are dealt out per class.

Found before, on MNIST: with 1/K each and ``dir_class``, FedAvg, AFL and Oort without its speed term end near
the accuracies of the paper's table. Here both weights side by side, in the static world.
"""

from __future__ import annotations

from emulator.experiments.designs.budget import TEST_SEEDS
from emulator.experiments.designs.sizes import FEW, derived, digits, full, smoke
from emulator.experiments.plan import Preset, Variant, VariantPlan

METHODS = ("fedavg", "afl", "oort", "oort:penalty=0", "random_by_size", "no_probe", "fedrank")
STATIC = {"fleet.traces": None, "protocol.every_s": 0}


def variant_plans(preset: Preset) -> list[VariantPlan]:
    """Both weights; on MNIST at full size."""
    base, seeds = {
        Preset.SMOKE: (smoke("dir-class"), FEW),
        Preset.LAPTOP: (digits("dir-class"), TEST_SEEDS[:5]),
        Preset.PAPER: (full("mnist-lenet5", "dir-class"), TEST_SEEDS),
    }[preset]
    return [VariantPlan(_weighed(base, rule), METHODS, seeds) for rule in ("by_size", "uniform")]


def _weighed(base: Variant, rule: str) -> Variant:
    how = {"by_size": "weighed by size", "uniform": "1/K each"}[rule]
    name = f"{base.name}-{rule.replace('_', '-')}"
    changes = {**STATIC, "protocol.aggregation": rule}
    return derived(base, name, f"{base.title}; nobody uses the phones; {how}", changes)
