"""FedRank without imitation (-I), without the rank loss (-P), without both (-IP), and without learning."""

from __future__ import annotations

from emulator.experiments.designs.sizes import (
    FEW,
    FIVE,
    TEN,
    derived,
    digits,
    full,
    half_mnist,
    longer,
    smoke,
)
from emulator.experiments.plan import Preset, VariantPlan

METHODS = (
    "fedavg", "fedrank", "fedrank_minus_i", "fedrank_minus_p", "fedrank_minus_ip", "fedrank_frozen",
    "no_probe",
)  # fmt: skip
LONG = 200
"""Learning from scratch is said to need 70 to 200 rounds; the paper has 50 (docs/selectors-notes.md, A26)."""


def variant_plans(preset: Preset) -> list[VariantPlan]:
    """At the paper's horizon and at a longer one."""
    if preset is Preset.SMOKE:
        return [VariantPlan(smoke("dir-client"), METHODS, FEW)]
    mnist = full("mnist-lenet5", "dir-client")
    if preset is Preset.LAPTOP:
        variants = (half_mnist("dir-client"), longer(digits("dir-client"), LONG))
        return [VariantPlan(variant, METHODS, FIVE) for variant in variants]
    vgg = full("cinic10-vgg16", "dir-client")
    # The paper's reward and loss figures name VGG-16 on CIFAR-10, which its table does not have (A31).
    figures = derived(
        vgg,
        "cifar10-vgg16-dir-client",
        "CIFAR-10, VGG-16; non-IID, Dirichlet per device (dir_client)",
        {"task.data": "cifar10"},
        paper_task="",
    )
    return [VariantPlan(variant, METHODS, TEN) for variant in (mnist, longer(mnist, LONG), figures)]
