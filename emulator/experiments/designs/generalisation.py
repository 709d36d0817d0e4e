"""Imitating one expert against several, and a policy pretrained on MNIST used on another task."""

from __future__ import annotations

from emulator.experiments.designs.sizes import (
    FEW,
    FIVE,
    TASKS,
    TEN,
    THREE,
    digits,
    full,
    half_mnist,
    small_cifar10,
    smoke,
)
from emulator.experiments.plan import Preset, VariantPlan

SINGLE = ("fedrank_from_oort", "fedrank_from_fedmarl", "fedrank_from_harmony_like")
METHODS = ("fedavg", "fedrank", *SINGLE, "fedrank_minus_i", "no_probe")
ELSEWHERE = ("fedavg", "oort", "fedmarl", "fedrank", "fedrank_minus_i", "fedrank_plus", "no_probe")


def variant_plans(preset: Preset) -> list[VariantPlan]:
    """The task of the pretraining first, then tasks that the policies have never seen."""
    if preset is Preset.SMOKE:
        return [VariantPlan(smoke("dir-client"), (*METHODS, "oort", "fedmarl"), FEW)]
    if preset is Preset.LAPTOP:
        return [
            VariantPlan(half_mnist("dir-client"), METHODS, THREE),
            VariantPlan(digits("dir-client"), (*METHODS, "oort", "fedmarl"), FIVE),
            VariantPlan(small_cifar10(), ELSEWHERE, THREE),
        ]
    return [VariantPlan(full(task, "dir-client"), (*METHODS, "oort", "fedmarl"), TEN) for task in TASKS]
