"""What a person wrote for a federated run, read and checked: scenario, settings, inventory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from emulator.runs.assemble import make_selector
from emulator.scenario.load import load_scenario, scenario_text
from emulator.scenario.model import Scenario
from harness.bench.matrix import fingerprint as bench_fingerprint
from harness.bench.plan import Plan
from harness.federate.settings import FederateSettings, load_settings
from harness.federate.suitable import bench_devices, check_selector, not_used, on_bench
from harness.inventory import Inventory, load_inventory
from harness.rounds.record import FEDERATION
from harness.rounds.session import resume_command
from joulefleet.records import canonical_json


@dataclass(frozen=True, slots=True)
class FederateFiles:
    """What a person wrote, read and checked.

    Attributes:
        scenario: With the bench as its fleet.
        devices: Who takes part, in the order of the partition.
        not_used: Parts of the scenario that mean nothing here.
    """

    scenario_name: str
    settings_path: Path | None
    inventory_path: Path
    scenario: Scenario
    seed: int
    settings: FederateSettings
    inventory: Inventory
    devices: tuple[str, ...]
    not_used: tuple[str, ...]

    kind = FEDERATION

    @property
    def name(self) -> str:
        """Part of the run's folder."""
        return self.scenario.name

    @property
    def bench_plan(self) -> Plan:
        """How one device's part of a round is measured."""
        return self.settings.plan(self.scenario)

    def config(self) -> dict[str, str]:
        """What the run keeps of it."""
        kept = {
            "scenario.toml": scenario_text(self.scenario_name),
            "scenario.resolved.json": self.scenario.to_json(),
        }
        if self.settings_path is not None:
            kept["federate.toml"] = self.settings_path.read_text(encoding="utf-8")
        return kept

    @property
    def fingerprint(self) -> str:
        """Of what decides the results."""
        content = {
            "scenario": self.scenario.model_dump(mode="json"),
            "seed": self.seed,
            "settings": self.settings.model_dump(mode="json"),
            "bench": bench_fingerprint(self.bench_plan, self.inventory),
        }
        return hashlib.sha256(canonical_json(content)).hexdigest()

    def command(self, run: Path) -> str:
        """The command that takes a run up again."""
        settings = [] if self.settings_path is None else ["--settings", self.settings_path]
        protocol = self.scenario.protocol
        chosen = ["--selector", self.scenario.selector.name, "--seed", self.seed, "--rounds", protocol.rounds]
        return resume_command(self, run, "bench federate", self.scenario_name, *settings, *chosen)


def read_files(
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
    return FederateFiles(
        scenario_name=scenario_name,
        settings_path=settings_path,
        inventory_path=inventory_path,
        scenario=scenario,
        seed=scenario.seeds[0] if seed is None else seed,
        settings=settings,
        inventory=inventory,
        devices=devices,
        not_used=tuple(not_used(given)),
    )
