"""What a scenario asks for and its traces or its trainer cannot give: refused before anything is played."""

from __future__ import annotations

from emulator.fleet.conditions import Conditions
from emulator.fleet.network import TransferSource
from emulator.scenario.model import FleetSection
from emulator.selectors.base import Selector
from emulator.training.base import Trainer
from joulefleet.errors import ConfigError

SURROGATE = "surrogate"


def check_recorded(fleet: FleetSection, conditions: Conditions) -> None:
    """Refuse rules about what was not recorded of anybody.

    Raises:
        ConfigError: Throughput or battery levels count, and there are none.
    """
    if fleet.network is TransferSource.TRACE and not conditions.has_rates:
        raise ConfigError(
            'fleet.network = "trace", but no throughput was recorded',
            hint='give traces with throughput, or write "profile" for transfers as measured with the devices',
        )
    if conditions.asks_level and not conditions.has_level.any():
        raise ConfigError(
            "fleet.traces.policy asks for the battery level, but none was recorded",
            hint="give traces with levels, or leave the battery out of the policy: "
            "a level that is modelled from the charger ends rounds, but does not enter a policy",
        )


def check_learnable(selector: Selector, trainer: Trainer, *, labels_known: bool) -> None:
    """Refuse methods that would choose by what is not there, and so at random.

    Raises:
        ConfigError: The selector needs labels that nobody knows, or weights where nothing is trained.
    """
    lacking = {
        "labels": "label_histogram" in selector.needs and not labels_known,
        "weights": selector.needs_weights and trainer.implementation == SURROGATE,
    }
    for what in (name for name, lacks in lacking.items() if lacks):
        raise ConfigError(
            f"selector {selector.name!r} chooses by the devices' {what}, "
            f"and the {trainer.implementation} trainer has none",
            hint="train for real (leave trainer.kind out), or take another selector",
        )
