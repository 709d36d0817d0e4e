"""The same fleet with and without its users: what apps, and being picked up, do to each method."""

from __future__ import annotations

from collections.abc import Mapping

from emulator.experiments.designs.sizes import FEW, FIVE, TEN, THREE, derived, digits, full, half_mnist, smoke
from emulator.experiments.plan import Preset, Variant, VariantPlan

METHODS = ("fedavg", "oort", "tifl", "fedmarl", "fedrank", "fedrank_plus", "no_probe")


def variant_plans(preset: Preset) -> list[VariantPlan]:
    """Nobody touches the phones; apps slow them down; they also leave when the screen goes on."""
    worlds: dict[Preset, list[VariantPlan]] = {
        Preset.SMOKE: _worlds(smoke("dir-client"), FEW),
        Preset.LAPTOP: [
            *_worlds(half_mnist("dir-client"), THREE),
            *_worlds(digits("dir-client"), FIVE, prefix="digits-"),
        ],
        Preset.PAPER: _worlds(full("mnist-lenet5", "dir-client"), TEN),
    }
    return worlds[preset]


def _worlds(base: Variant, seeds: tuple[int, ...], prefix: str = "") -> list[VariantPlan]:
    noon = {"fleet.traces.start": "12:00"}  # at night there is little to see
    variants = (
        _beside(base, f"{prefix}untouched", "no user activity", {"fleet.traces": None}),
        _beside(base, f"{prefix}apps", "apps slow the phones down", noon),
        _beside(
            base,
            f"{prefix}apps-and-leaving",
            "and only idle phones train",
            {**noon, "fleet.traces.policy": "idle"},
        ),
    )
    return [VariantPlan(variant, METHODS, seeds) for variant in variants]


def _beside(base: Variant, name: str, what: str, changes: Mapping[str, object]) -> Variant:
    # The paper has one world: its numbers beside three would mislead.
    return derived(base, name, f"{base.title}; {what}", changes, paper_task="")
