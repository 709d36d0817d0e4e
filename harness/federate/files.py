"""What a person wrote for a federated run, read and checked: scenario, settings, inventory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from emulator import Scenario, load_scenario
from emulator.runs import make_selector
from emulator.scenario import scenario_text
from harness.bench.matrix import fingerprint as bench_fingerprint
from harness.federate.settings import FederateSettings, load_settings
from harness.federate.suitable import bench_devices, check_selector, not_used, on_bench
from harness.inventory import load_inventory
from harness.rounds.record import FEDERATION
from harness.rounds.session import INVENTORY_FILE, RunFiles, texts
from joulefleet.records import canonical_json

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
) -> FederateFiles:
    """Read and check a scenario, the settings and the inventory; touches nothing else.

    Raises:
        ConfigError: They do not fit each other, or ask for what a bench does not do.
    """
    given = load_scenario(scenario_name)
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
