"""Time-to-accuracy and energy-to-accuracy curves."""

from __future__ import annotations

from emulator.experiments.designs.sizes import FEW, TASKS, TEN, THREE, full, small_cifar10, smoke
from emulator.experiments.plan import Preset, VariantPlan

METHODS = ("fedavg", "oort", "fedmarl", "fedrank", "fedrank_minus_i", "fedrank_plus", "no_probe")


def variant_plans(preset: Preset) -> list[VariantPlan]:
    """The methods of the paper's figure, FedRank without its pretraining, FedRank+ and its control."""
    if preset is Preset.SMOKE:
        return [VariantPlan(smoke(split), METHODS, FEW) for split in ("iid", "dir-client")]
    if preset is Preset.LAPTOP:
        return [VariantPlan(small_cifar10(), METHODS, THREE)]
    return [VariantPlan(full(task, split), METHODS, TEN) for task in TASKS for split in ("iid", "dir-client")]
