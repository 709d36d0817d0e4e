"""The Flower adapter in a real Flower simulation: the rounds of our own engine, and clients that fail."""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from emulator.runs.assembly import make_selector
from emulator.runs.batch import run
from emulator.runs.result import Result, load_result
from emulator.scenario.load import load_scenario
from emulator.selectors.registry import SELECTORS
from harness.cli import run as joulefleet
from joulefleet.errors import EXIT_CONFIG
from tests.conftest import FULL_COUNTS, REPOSITORY, missing

EXAMPLE = REPOSITORY / "examples" / "flower"
SCENARIO = """
name = "flower-test"

[fleet]
devices = 8
speed_spread = 0.3

[fleet.traces]
at_end = "wrap"
users = 8
days = 2

[task]
name = "digits-mlp"
learning_rate = 0.1
partition = "dir_client"
options = { alpha = 0.3 }
held_out = 0.2

[protocol]
rounds = 3
k = 2
candidates = 4
local_epochs = 2
"""
# One of every kind: nothing before the choice, a probe epoch, two kinds of profiling, uploaded weights, a
# proximal term, losses of all samples, of one batch and of participants, bias changes, a probe that is left
# out where it decides nothing, an oracle.
KINDS = (
    *("fedavg", "fedrank", "tifl", "favor", "fedprox", "power_of_choice", "cpow_d", "afl", "harmony_like"),
    "frugal",
)
CHOSEN = tuple(SELECTORS.entries()) if FULL_COUNTS else (*KINDS, "class_coverage_oracle")

# Flower starts a Ray, which takes its time on a busy machine, and must not meet another one.
pytestmark = [pytest.mark.timeout(1500), pytest.mark.xdist_group("ray")]


@dataclass(frozen=True)
class Simulated:
    scenario: Path
    run: Path
    broken: Path
    faults: dict[str, str]
    refused: dict[str, str]


@pytest.fixture(scope="module")
def flower_python() -> Path:
    path = REPOSITORY / ".venv-peers-flower" / "bin" / "python"
    if not path.exists():
        missing("no .venv-peers-flower (examples/flower/README.md says how to make it)")
    return path


@pytest.fixture(scope="module")
def simulated(flower_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    folder = tmp_path_factory.mktemp("flower")
    scenario = folder / "scenario.toml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    script = Path(__file__).with_name("flower_simulation.py")
    # Ray's workers are nice by 15 and would starve beside other tests.
    settings = {
        "PYTHONPATH": f"{EXAMPLE}:{REPOSITORY}",
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_worker_niceness": "0",
    }
    done = subprocess.run(
        [flower_python, script, scenario, folder / "emulations", *CHOSEN],
        capture_output=True,
        text=True,
        timeout=1400,
        env={**os.environ, **settings},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith('{"run"')]
    found = json.loads(line)
    return Simulated(scenario, Path(found["run"]), Path(found["broken"]), found["faults"], found["refused"])


def local(simulated: Simulated, selector: str, out: Path) -> Result:
    """The same scenario in our own engine."""
    scenario = load_scenario(simulated.scenario)
    chosen = scenario.selector.model_copy(update={"name": selector})
    trainer = scenario.trainer.model_copy(update={"kind": "cpu", "workers": 1})
    scenario = scenario.model_copy(update={"selector": chosen, "trainer": trainer})
    return run(scenario, selector=make_selector(scenario), out=out)


@pytest.mark.campaign
@pytest.mark.parametrize("selector", CHOSEN)
def test_a_simulation_plays_the_rounds_of_our_engine(
    simulated: Simulated, tmp_path: Path, selector: str, record_property: Callable[[str, object], None]
) -> None:
    flower, ours = load_result(simulated.run / f"{selector}_s0"), local(simulated, selector, tmp_path)
    assert flower.record.rounds == 3
    assert set(flower.rounds["training"]) == {"flower"}
    # Flower averages weights in 32 bits, our trainer in 64, so that losses may differ by rounding. Who took
    # part, how it ended for each, what it cost and what came of it is the same to the last bit.
    apart = 0.0
    for name in ("clients", "rounds"):
        theirs, expected = getattr(flower, name), getattr(ours, name)
        rounded = [c for c in theirs if c in ("loss", "loss_rms") or c.startswith("selector_")]
        exact = theirs.columns.difference([*rounded, "training"])
        assert theirs[exact].equals(expected[exact])
        assert theirs[rounded].isna().equals(expected[rounded].isna())
        apart = max(apart, (theirs[rounded] / expected[rounded] - 1).abs().max(axis=None))
    record_property("relative_difference", apart)
    assert apart < 1e-4


def test_our_tools_read_the_run(simulated: Simulated, capsys: pytest.CaptureFixture[str]) -> None:
    assert joulefleet(["compare", str(simulated.run), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert "training flower" in said["basis"]


@pytest.mark.parametrize(("kind", "seed"), [("fails", 101), ("fails later", 102), ("diverges", 103)])
def test_a_client_that_fails_is_charged_and_left_out(simulated: Simulated, kind: str, seed: int) -> None:
    assert simulated.faults[kind] == "played"
    result = load_result(simulated.broken / f"fedrank_s{seed}")
    assert result.rounds["round"].tolist() == [1, 2, 3]
    assert result.rounds["accuracy"].notna().all()
    last = result.clients[result.clients["round"] == 3]
    odd = last["device"] % 2 == 1
    reached = odd & last["chosen"] if kind == "fails later" else odd
    assert reached.any()
    assert set(last[reached]["fate"]) == {"diverged"}
    assert (last[reached]["train_j" if kind == "fails later" else "probe_j"] > 0).all()
    assert not (last[~odd]["fate"] == "diverged").any()


def test_a_client_needs_four_members(simulated: Simulated) -> None:
    """That of the README: with a selector that asks for no more it plays, another one is refused at once."""
    assert simulated.faults["four members, fedrank"] == "played"
    result = load_result(simulated.broken / "fedrank_s105")
    assert result.rounds["n_finished"].tolist() == [2, 2, 2]
    assert not (result.clients["fate"] == "diverged").any()
    said = simulated.faults["four members, afl"]
    assert said == "ConfigError: 'afl' asks clients for `losses`, and theirs is not written"


def test_clients_that_disagree_about_their_numbers_are_refused(simulated: Simulated) -> None:
    assert simulated.faults["nameless"].startswith("DeviceProtocolError: the clients' own numbers")


def test_what_cannot_be_is_refused(simulated: Simulated) -> None:
    assert simulated.refused == {
        "uniform": "ConfigError: Flower's FedAvg weights updates by size",
        "rounds": "ConfigError: 99 rounds are asked for, the scenario has 3",
        "early": "ConfigError: the strategy has not been started",
        "shape": "DeviceProtocolError: a client sent arrays of other names or shapes than the model has",
        "bias": "ConfigError: the model has no output bias of 10 entries, which this selector reads",
        "metric": "DeviceProtocolError: client 5 answered without the number 'loss-rms'",
    }


def test_a_wrong_selector_is_refused_before_anything_starts(flower_python: Path, tmp_path: Path) -> None:
    command = [flower_python, EXAMPLE / "run.py", "--selector", "fedrnk", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == EXIT_CONFIG
    assert "no selector called 'fedrnk'" in done.stderr
    assert "did you mean 'fedrank'" in done.stderr
    assert not list(tmp_path.iterdir())
