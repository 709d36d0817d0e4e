"""What probing costs and saves: FedRank with M candidates against two baselines.

FedAvg, which probes nobody, is played. Vanilla, in which all M candidates train all epochs, is worked out
from the same rounds (`emulator.experiments.vanilla`).
"""

from __future__ import annotations

from emulator.experiments.designs.sizes import FEW, TEN, THREE, derived, full, half_mnist, smoke
from emulator.experiments.plan import Preset, SweptQuantity, Variant, VariantPlan

CANDIDATES = (15, 20, 30, 50, 100)


def variant_plans(preset: Preset) -> list[VariantPlan]:
    """From few candidates to all (the paper's wording, A3)."""
    mnist = full("mnist-lenet5", "iid")
    sizes: dict[Preset, tuple[Variant, tuple[int, ...], tuple[int, ...]]] = {
        Preset.SMOKE: (smoke("iid"), FEW, (8, 15, 30)),
        Preset.LAPTOP: (half_mnist("iid"), THREE, CANDIDATES),
        Preset.PAPER: (mnist, TEN, CANDIDATES),
    }
    base, seeds, candidates = sizes[preset]
    return [
        VariantPlan(base, ("fedavg", "no_probe"), seeds),
        *(VariantPlan(_among(base, m), ("fedrank",), seeds) for m in candidates),
    ]


def _among(base: Variant, candidates: int) -> Variant:
    return derived(
        base,
        f"candidates-{candidates}",
        f"{base.title}; M = {candidates}",
        {"protocol.candidates": candidates},
        baseline=base.name,
        swept=SweptQuantity(quantity="candidates", key="protocol.candidates"),
    )
