"""One real Flower simulation: every selector named, and clients that fail. Runs where Flower is installed.

Arguments: the scenario file, the folder for runs, the selectors. Prints the run's folder and what became of
each fault as one line of JSON.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from digits_client import OpenTorchClient, TorchClient
from flwr.app import Array, ArrayRecord
from run import play, simulate

from device_agents.workloads import Task, build
from emulator.round.rules import Aggregation
from emulator.runs.batch import plan, start
from emulator.scenario.load import load_scenario, scenario_text
from emulator.scenario.model import Scenario
from emulator.training.client_data import ClientData
from joulefleet.errors import JoulefleetError
from joulefleet.runstore import Run
from joulefleet_flower.clients import number
from joulefleet_flower.rows import Rows
from joulefleet_flower.strategy import SelectingFedAvg

FAULTS = {101: "fails", 102: "fails later", 103: "diverges", 104: "nameless"}
"""What clients of odd numbers do in the runs of these seeds."""
FOUR_MEMBERS = 105
"""Seed of runs with the client of the README, which has the four members that every client needs."""
README = Path(__file__).parents[2] / "examples" / "flower" / "README.md"


class Broken(TorchClient):
    """Misbehaves in the third round."""

    def __init__(self, task: Task, data: ClientData, client: int) -> None:
        super().__init__(task, data, client)
        self._fault = FAULTS.get(data.seed) if client % 2 else None
        if self._fault == "nameless":
            self.client = None

    def train(self, round_number: int, epochs: range, proximal_mu: float) -> np.ndarray:
        losses = super().train(round_number, epochs, proximal_mu)
        probing = epochs.start == 0
        if round_number == 3 and self._fault == ("fails" if probing else "fails later"):
            raise RuntimeError("out of memory, says the test")
        return losses * np.nan if round_number == 3 and self._fault == "diverges" else losses


def client_of_the_page(task: Task, data: ClientData, client: int) -> Any:
    (block,) = re.findall(r"```python\n(import numpy.*?)\n\napp = ", README.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)  # the page's own words
    x, y = data.training(client)
    return names["MyClient"](client, build(task), torch.from_numpy(x), torch.from_numpy(y))


class OpenBroken(OpenTorchClient):
    @staticmethod
    def make(task: Task, data: ClientData, client: int) -> Any:
        return (client_of_the_page if data.seed == FOUR_MEMBERS else Broken)(task, data, client)


def refusals(scenario: Scenario, run: Run) -> dict[str, str]:
    """What is refused without any client."""
    weights = ArrayRecord({"bias": Array(np.zeros(3, np.float32))})
    uniform = scenario.protocol.model_copy(update={"aggregation": Aggregation.UNIFORM})
    given: dict[str, Any] = {"seed": 0, "run": run, "classes": 10, "score": None}
    attempts: dict[str, Callable[[], object]] = {
        "uniform": lambda: SelectingFedAvg(scenario.model_copy(update={"protocol": uniform}), **given),
        "rounds": lambda: SelectingFedAvg(scenario, **given).start(None, weights, num_rounds=99),
        "early": lambda: SelectingFedAvg(scenario, **given).configure_train(1, weights, {}, None),
        "shape": lambda: Rows(weights).row(ArrayRecord({"bias": Array(np.zeros(4, np.float32))})),
        "bias": lambda: Rows(weights).output_bias(10),
        "metric": lambda: number({"loss": 1.0}, 5, "loss-rms"),
    }
    found = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except JoulefleetError as error:
            found[name] = f"{type(error).__name__}: {error.message}"
    return found


def main(scenario_file: str, out: str, *selectors: str) -> None:
    scenario = load_scenario(scenario_file)
    index = plan(scenario, selectors, scenario.seeds)
    faulty = plan(scenario, ["fedrank"], list(FAULTS))
    found: dict[str, Any] = {}
    with (
        start(Path(out), index, scenario_text(scenario_file)) as run,
        start(Path(out), faulty, scenario_text(scenario_file)) as broken,
    ):

        def serve(grid: Any) -> None:
            for planned in index.planned:
                play(run, index, planned, grid)
            for planned in faulty.planned:
                try:
                    play(broken, faulty, planned, grid)
                    found[FAULTS[planned.seed]] = "played"
                except JoulefleetError as error:
                    found[FAULTS[planned.seed]] = f"{type(error).__name__}: {error.message}"

            for planned in plan(scenario, ["fedrank", "afl"], [FOUR_MEMBERS]).planned:
                try:
                    play(broken, faulty, planned, grid)
                    found[f"four members, {planned.selector}"] = "played"
                except JoulefleetError as error:
                    found[f"four members, {planned.selector}"] = f"{type(error).__name__}: {error.message}"

        simulate(serve, OpenBroken(scenario), scenario.fleet.devices, cpus=1)
        refused = refusals(scenario, run)
    paths = {"run": str(run.path), "broken": str(broken.path)}
    print(json.dumps({**paths, "faults": found, "refused": refused}))


if __name__ == "__main__":
    main(*sys.argv[1:])
