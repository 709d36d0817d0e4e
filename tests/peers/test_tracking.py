"""What we export for TensorBoard and MLflow, read by TensorBoard and MLflow."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from emulator.runs.batch import plan, play, start
from emulator.runs.result import EMULATION_FILE, Result, load_result
from emulator.scenario.model import FleetSection, ProtocolSection, Scenario, TrainerSection
from joulefleet.runstore.run import read_run
from tests.conftest import REPOSITORY, missing

SCENARIO = Scenario(
    name="tracked",
    fleet=FleetSection(devices=20, speed_spread=0.3),
    protocol=ProtocolSection(rounds=4, k=3, candidates=6, local_epochs=2),
    trainer=TrainerSection(kind="surrogate"),
)
pytestmark = pytest.mark.timeout(600)  # importing MLflow alone takes seconds of an idle core
BASIS = "origin: emulated, cost origin: literature, energy: marginal, training: surrogate"


@pytest.fixture(scope="module")
def tracking() -> Path:
    """Programs of the environment that holds the trackers, and joulefleet."""
    programs = REPOSITORY / ".venv-peers-tracking" / "bin"
    if not (programs / "joulefleet").exists():
        missing("no .venv-peers-tracking (tests/peers/requirements-tracking.txt says how to make it)")
    return programs


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    index = plan(SCENARIO, ["fedrank", "tifl"], [3])
    with start(tmp_path_factory.mktemp("emulations"), index, "") as run:
        play(run, index)
    return run.path


def called(program: Path, *arguments: object) -> str:
    # A warning of theirs is not our error; what they cannot read is.
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read(tracking: Path, what: str, *places: object) -> Any:
    return json.loads(
        called(tracking / "python", Path(__file__).with_name("read_tracking.py"), what, *places)
    )


def results(run: Path) -> list[Result]:
    return [load_result(record.parent) for record in sorted(run.glob(f"*/{EMULATION_FILE}"))]


def expected(result: Result, column: str) -> list[tuple[int, float, float]]:
    """Step, seconds of the virtual clock, value."""
    rounds = result.rounds[result.rounds[column].notna()]
    after_s = (rounds["start_ns"] + rounds["duration_ns"]) * 1e-9
    return list(zip(rounds["round"].tolist(), after_s.tolist(), rounds[column].tolist(), strict=True))


def test_tensorboard_shows_every_round_on_the_virtual_clock(
    tracking: Path, emulated: Path, tmp_path: Path
) -> None:
    called(tracking / "joulefleet", "export", emulated, "--tensorboard", tmp_path / "logs")
    (seen,) = read(tracking, "tensorboard", tmp_path / "logs")
    created_s = read_run(emulated).created_utc.timestamp()
    stored = {f"{emulated.name}/{result.path.name}": result for result in results(emulated)}
    assert len(stored) == 2
    assert set(seen) == set(stored)
    for name, result in stored.items():
        numbers = [column for column in result.rounds if pd.api.types.is_numeric_dtype(result.rounds[column])]
        for column in set(numbers) - {"round", "start_ns", "duration_ns", "idle_ns"}:
            points = expected(result, column)
            if not points:
                continue
            tag = seen[name][f"rounds/{column.replace('selector_', 'selector/')}"]
            assert tag["description"] == BASIS
            assert [step for step, _, _ in tag["points"]] == [step for step, _, _ in points]
            for (_, wall_s, value), (_, after_s, exact) in zip(tag["points"], points, strict=True):
                assert wall_s == pytest.approx(created_s + after_s, abs=1e-6)
                assert value == pytest.approx(exact, rel=1e-6)  # TensorBoard keeps 32 bits
    profiled = seen[f"{emulated.name}/tifl_s3"]["rounds/n_profiled"]["points"]
    assert [(step, value) for step, _, value in profiled] == [(0, 20), (1, 0), (2, 0), (3, 0), (4, 0)]


def test_mlflow_reads_the_store_and_moves_it_into_a_database(
    tracking: Path, emulated: Path, tmp_path: Path
) -> None:
    called(tracking / "joulefleet", "export", emulated, "--mlflow", tmp_path / "mlruns")
    database = f"sqlite:///{tmp_path / 'moved.db'}"
    called(tracking / "mlflow", "migrate-filestore", "--source", tmp_path, "--target", database)
    store, moved = read(tracking, "mlflow", (tmp_path / "mlruns").as_uri(), database)
    seen = store[emulated.name]
    assert moved[emulated.name] == seen
    created_ms = read_run(emulated).created_utc.timestamp() * 1000
    for result in results(emulated):
        run = seen[result.path.name]
        assert run["status"] == "FINISHED"
        assert run["params"]["protocol.k"] == "3"
        assert run["params"]["selector.name"] == result.record.selector
        assert run["params"]["seed"] == "3"
        assert run["tags"]["joulefleet.cost_origin"] == "literature"
        assert run["tags"]["mlflow.note.content"] == BASIS
        for column in ("accuracy", "energy_j_honest", "time_s_free", "test_accuracy", "n_finished"):
            points = expected(result, column)
            assert [(s, v) for s, _, v in run["metrics"][column]] == [(s, v) for s, _, v in points]
            for (_, wall_ms, _), (_, after_s, _) in zip(run["metrics"][column], points, strict=True):
                assert wall_ms == pytest.approx(created_ms + after_s * 1000, abs=1)
