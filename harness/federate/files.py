"""What a person wrote for a federated run, read and checked. What a bench cannot do is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emulator import Probe, Profiling, Scenario, Selector, load_scenario
from emulator.own_code import use_code
from emulator.round import PRIVILEGED_FIELDS
from emulator.runs import make_selector
from emulator.scenario import FleetSection, scenario_text, with_code
from emulator.training import SURROGATE
from harness.bench.matrix import fingerprint as bench_fingerprint
from harness.bench.matrix import plan_devices
from harness.federate.settings import FederateSettings, load_settings
from harness.inventory import Inventory, load_inventory
from harness.rounds.record import FEDERATION
from harness.rounds.session import INVENTORY_FILE, RunFiles, texts
from joulefleet.errors import ConfigError
from joulefleet.records import canonical_json

NOT_REPORTED = {
    "global_loss": "agents do not run a forward pass over their data before they train",
    "local_accuracy": "agents do not score the new model on samples of their own",
    "battery": "batteries are not asked about between rounds",
}
"""Fields of the view that no device of a bench reports."""


def bench_devices(scenario: Scenario, settings: FederateSettings, inventory: Inventory) -> tuple[str, ...]:
    """The devices that take part, in the order of the partition.

    Raises:
        ConfigError: One is unknown, has no meter, or shares one, or a folder: all work at the same time.
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
    inventory.require_places(devices)
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


SETTINGS_FILE = "federate.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class FederateFiles(RunFiles):
    """A scenario, how it is played on the bench, and the inventory.

    Attributes:
        scenario: With the bench as its fleet.
        devices: Who takes part, in the order of the partition.
        not_used: Parts of the scenario that mean nothing here.
    """

    scenario: Scenario
    seed: int
    settings: FederateSettings
    devices: tuple[str, ...]
    not_used: tuple[str, ...]


def read_federate_files(
    scenario_name: str,
    inventory_path: Path,
    settings_path: Path | None = None,
    *,
    selector: str | None = None,
    seed: int | None = None,
    rounds: int | None = None,
    code: Sequence[Path] = (),
) -> FederateFiles:
    """Read and check a scenario, the settings and the inventory; touches nothing else.

    Raises:
        ConfigError: They do not fit each other, or ask for what a bench does not do.
    """
    given = with_code(load_scenario(scenario_name), use_code(*code))
    if given.sweep is not None:
        raise ConfigError(
            f"scenario {given.name!r} is a sweep, and a bench plays one scenario at a time",
            hint="leave [sweep] out; `joulefleet emulate` plays all of its variants",
        )
    if selector is not None and selector != given.selector.name:
        section = given.selector.model_copy(update={"name": selector, "options": {}})
        given = given.model_copy(update={"selector": section})
    if rounds is not None:
        given = given.model_copy(update={"protocol": given.protocol.model_copy(update={"rounds": rounds})})
    settings, inventory = load_settings(settings_path), load_inventory(inventory_path)
    devices = bench_devices(given, settings, inventory)
    scenario = on_bench(given, len(devices))
    check_selector(make_selector(scenario))
    seed = scenario.seeds[0] if seed is None else seed
    plan = settings.plan(scenario)
    decides = {
        "scenario": scenario.model_dump(mode="json"),
        "seed": seed,
        "settings": settings.model_dump(mode="json"),
        "bench": bench_fingerprint(plan, inventory),
    }
    options = [] if settings_path is None else ["--settings", str(settings_path)]
    options += ["--selector", scenario.selector.name, "--seed", str(seed)]
    options += ["--rounds", str(scenario.protocol.rounds)]
    options += [word for path in code for word in ("--code", str(path))]
    return FederateFiles(
        kind=FEDERATION,
        name=scenario.name,
        config={
            "scenario.toml": scenario_text(scenario_name),
            "scenario.resolved.json": scenario.to_json(),
            **texts({INVENTORY_FILE: inventory_path, SETTINGS_FILE: settings_path}),
        },
        words=("bench", "federate", scenario_name, "--inventory", str(inventory_path), *options),
        fingerprint=hashlib.sha256(canonical_json(decides)).hexdigest(),
        bench_plan=plan,
        inventory_path=inventory_path,
        inventory=inventory,
        scenario=scenario,
        seed=seed,
        settings=settings,
        devices=devices,
        not_used=tuple(not_used(given)),
    )
