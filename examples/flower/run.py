"""Federated learning on handwritten digits in a Flower simulation, once for each selector and seed.

::

    python examples/flower/run.py --selector fedavg,fedrank --seeds 0-2
    joulefleet compare emulations/<run>
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from digits_client import OpenTorchClient, score_of, task_and_data
from flwr.app import Array, ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from device_agents.workloads import build, initial_state
from emulator import Scenario, load_scenario
from emulator.runs import BatchEntry, BatchIndex, make_selector, plan, start
from emulator.scenario import scenario_text
from joulefleet.errors import JoulefleetError
from joulefleet.runstore import Run
from joulefleet.seeds import torch_seed
from joulefleet_flower.client import OpenClient, selectable
from joulefleet_flower.strategy import SelectingFedAvg

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 600.0
"""So long a client's answer is waited for: Flower goes on waiting when its Ray has died."""


def play(run: Run, index: BatchIndex, planned: BatchEntry, grid: Grid) -> None:
    """One selector with one seed, from its first round to its last."""
    scenario, seed = index.scenario_of(planned), planned.seed
    task, clients = task_and_data(scenario.model_dump_json(), seed)
    model = build(task)

    def score(arrays: ArrayRecord, split: str) -> tuple[float, float]:
        model.load_state_dict(arrays.to_torch_state_dict())
        part = getattr(clients.data, split)
        return score_of(model, clients.data.inputs(part.x), part.y)

    initial = initial_state(task, torch_seed(seed, "initial weights"))
    strategy = SelectingFedAvg(
        scenario, seed=seed, run=run, folder=planned.folder, classes=task.classes, score=score
    )
    strategy.start(
        grid,
        ArrayRecord({name: Array(value) for name, value in initial.items()}),
        timeout=TIMEOUT_S,
        train_config=ConfigRecord({"seed": seed}),
    )


def simulate(serve: Callable[[Grid], None], open_client: OpenClient, nodes: int, cpus: int) -> None:
    """Run the server's part of a federation in Flower's simulation."""
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        serve(grid)

    resources = {
        "init_args": {"num_cpus": cpus, "include_dashboard": False},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
    run_simulation(server, selectable(open_client), num_supernodes=nodes, backend_config=resources)


def run_plan(scenario: Scenario, text: str, given: argparse.Namespace) -> Path:
    """Every selector with every seed, in one simulation; returns the run's folder."""
    index = plan(scenario, given.selector.split(","), given.seeds)
    for planned in index.planned:
        make_selector(index.scenario_of(planned))  # a wrong name is an error now, not after an hour
    with start(given.out, index, text) as run:

        def serve(grid: Grid) -> None:
            for planned in index.planned:
                play(run, index, planned, grid)

        simulate(serve, OpenTorchClient(scenario), scenario.fleet.devices, given.cpus)
    return run.path


def seeds_of(text: str) -> list[int]:
    """``0-2,7`` as numbers."""
    ends = [part.split("-") for part in text.split(",")]
    return [seed for end in ends for seed in range(int(end[0]), int(end[-1]) + 1)]


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scenario", default=str(HERE / "digits.toml"))
    parser.add_argument("--selector", default="fedavg,fedrank", help="comma-separated")
    parser.add_argument("--seeds", type=seeds_of, default=[0], help="e.g. 0-2")
    parser.add_argument("--out", type=Path, default=Path("emulations"))
    parser.add_argument("--cpus", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    try:
        path = run_plan(load_scenario(given.scenario), scenario_text(given.scenario), given)
    except JoulefleetError as error:
        print(f"error: {error.message}" + (f"\n  try: {error.hint}" if error.hint else ""), file=sys.stderr)
        sys.exit(error.exit_code)
    print(f"\njoulefleet compare {path}")


if __name__ == "__main__":
    main()
