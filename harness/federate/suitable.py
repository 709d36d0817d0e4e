"""What of a scenario a bench can do. What it cannot is refused, never imitated."""

from __future__ import annotations

from emulator import Probe, Profiling, Scenario, Selector
from emulator.round import PRIVILEGED_FIELDS
from emulator.scenario import FleetSection
from emulator.training import SURROGATE
from harness.bench.matrix import plan_devices
from harness.federate.settings import FederateSettings
from harness.inventory import Inventory
from joulefleet.errors import ConfigError

NOT_REPORTED = {
    "global_loss": "agents do not run a forward pass over their data before they train",
    "local_accuracy": "agents do not score the new model on samples of their own",
    "battery": "batteries are not asked about between rounds",
}
"""Fields of the view that no device of a bench reports."""


def bench_devices(scenario: Scenario, settings: FederateSettings, inventory: Inventory) -> tuple[str, ...]:
    """The devices that take part, in the order of the partition.

    Raises:
        ConfigError: One is unknown, has no meter, or shares one: all may be measured at the same time.
    """
    devices = plan_devices(settings.plan(scenario), inventory)
    for condition in settings.conditions:
        inventory.device(condition.device)
    by_meter: dict[str, str] = {}
    for device in devices:
        other = by_meter.setdefault(inventory.meter_key(device), device)
        if other != device:
            raise ConfigError(
                f"{other} and {device} share a meter, so they cannot be in the same round",
                hint="name the devices to use in the settings (`devices = [...]`)",
            )
    return devices


def on_bench(scenario: Scenario, devices: int) -> Scenario:
    """The scenario with the bench as its fleet: so many real devices, whatever they are and do.

    Raises:
        ConfigError: It asks for something that a bench does not do.
    """
    protocol = scenario.protocol
    if scenario.trainer.kind == SURROGATE:
        raise ConfigError("trainer.kind: the surrogate trains nothing; on a bench the devices train")
    for name, asked in (
        ("over_commit", protocol.over_commit > 1),
        ("deadline_s", protocol.deadline_s is not None),
        ("probe_deadline_s", protocol.probe_deadline_s is not None),
    ):
        if asked:
            raise ConfigError(
                f"protocol.{name}: not on a bench", hint="`timing` of the settings bounds the waiting there"
            )
    if protocol.k > devices:
        raise ConfigError(
            f"protocol.k: {protocol.k} clients per round, but the bench has {devices} devices",
            hint="lower it in a scenario of your own, or add devices",
        )
    candidates = protocol.candidates
    if isinstance(candidates, int):
        protocol = protocol.model_copy(update={"candidates": min(candidates, devices)})
    trainer = scenario.trainer.model_copy(update={"workers": 1})  # the server only scores models here
    return scenario.model_copy(
        update={"fleet": FleetSection(devices=devices), "protocol": protocol, "trainer": trainer}
    )


def not_used(scenario: Scenario) -> list[str]:
    """Parts of the fleet section that real devices make meaningless."""
    given = scenario.fleet.model_fields_set - {"devices"}
    return sorted(f"fleet.{name}" for name in given)


def check_selector(selector: Selector) -> None:
    """Refuse a selector that asks for what no device of a bench tells.

    Raises:
        ConfigError: Says what is missing.
    """
    name = selector.name
    if selector.privileged or selector.needs & PRIVILEGED_FIELDS:
        raise ConfigError(f"selector {name!r} is an oracle: it needs the truth, which a bench does not know")
    if selector.probe not in (Probe.NONE, Probe.EPOCH):
        raise ConfigError(
            f"selector {name!r} probes by a forward pass, which agents do not do",
            hint="methods that probe by the first epoch, or not at all, can be run",
        )
    if selector.profiling is not Profiling.NONE:
        raise ConfigError(f"selector {name!r} profiles every device first, which is not done on a bench yet")
    if selector.proximal_mu:
        raise ConfigError(f"selector {name!r} changes the local objective, which agents do not do")
    for field in sorted(selector.needs & set(NOT_REPORTED)):
        raise ConfigError(f"selector {name!r} needs {field!r}: {NOT_REPORTED[field]}")
