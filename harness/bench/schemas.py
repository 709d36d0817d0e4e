"""JSON schemas of the files that people write, for editors that complete and check them."""

from __future__ import annotations

from typing import Any

from emulator.scenario.model import Scenario
from harness.bench.plan import Plan
from harness.federate.settings import FederateSettings
from harness.inventory import Inventory
from harness.probing.plan import ProbingPlan
from joulefleet.config import ClosedModel

SCHEMAS: dict[str, type[ClosedModel]] = {
    "plan": Plan,
    "devices": Inventory,
    "probing": ProbingPlan,
    "federate": FederateSettings,
    "scenario": Scenario,
}


def schema(name: str) -> dict[str, Any]:
    """The schema of one of them."""
    found = SCHEMAS[name].model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}
