"""How much the demo does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DemoSize:
    """What decides how long it takes.

    Attributes:
        samples: Of one epoch on the bench; a multiple of the batch of 32, so that one graph is exported.
        under_load: Whether the bench also measures beside a background load; without, no app slows a phone.
        rounds: Of each emulation.
        seeds: Of each method.
    """

    samples: int
    under_load: bool
    rounds: int
    seeds: tuple[int, ...]


FULL = DemoSize(samples=960, under_load=True, rounds=15, seeds=(0, 1, 2))
QUICK = DemoSize(samples=320, under_load=False, rounds=4, seeds=(0,))
"""For a first look, and for tests: one seed, so no intervals over seeds."""
