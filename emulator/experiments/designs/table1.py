"""Table 1: accuracy, energy and speed per round of all methods, IID and both readings of non-IID."""

from __future__ import annotations

from emulator.experiments.designs.sizes import FEW, FIVE, SPLITS, TASKS, TEN, THREE, full, half_mnist, smoke
from emulator.experiments.plan import Preset, VariantPlan

METHODS = ("fedavg", "oort", "fedmarl", "fedrank", "fedrank_plus", "no_probe")
# `random_by_size` is a control: on dir_class it reaches the paper's best band
# (docs/results/archive/table1.md).
OTHERS = ("fedprox", "afl", "tifl", "favor", "random_by_size")


def variant_plans(preset: Preset) -> list[VariantPlan]:
    """All methods on every split."""
    if preset is Preset.SMOKE:
        return [VariantPlan(smoke(split), METHODS, FEW, OTHERS, FEW) for split in SPLITS]
    if preset is Preset.LAPTOP:
        return [VariantPlan(half_mnist(split), METHODS, FIVE, OTHERS, THREE) for split in SPLITS]
    return [VariantPlan(full(task, split), METHODS, TEN, OTHERS, TEN) for task in TASKS for split in SPLITS]
