"""Runs for experiment trackers; `tests/peers/test_tracking.py` lets the trackers themselves read them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from emulator.runs.batch import plan, play, run, start
from emulator.runs.result import EMULATION_FILE, load_result
from emulator.scenario.model import FleetSection, ProtocolSection, Scenario, TrainerSection
from harness.cli import run as joulefleet
from harness.export.curves import Point, run_curves
from harness.results.stored_run import StoredRun
from joulefleet.runstore import RunStore
from joulefleet.runstore.run import read_run
from tests.emulator.small_experiment import played, small_plan
from tests.harness.stored_bench import EPOCHS_S, TRAIN_W, stored_bench

# A stored bench is recorded in real time: such tests run one after the other, not against each other.
pytestmark = pytest.mark.xdist_group("bench")

SMALL = Scenario(
    name="small",
    fleet=FleetSection(devices=20, speed_spread=0.3),
    protocol=ProtocolSection(rounds=3, k=3, candidates=6, test_every=2),
    trainer=TrainerSection(kind="surrogate"),
)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    index = plan(SMALL, ["fedavg", "tifl"], [4])
    with start(tmp_path_factory.mktemp("emulations"), index, "") as stored:
        play(stored, index)
    return stored.path


def call(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    capsys.readouterr()
    assert joulefleet([*map(str, arguments), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def meta(file: Path) -> dict[str, Any]:
    """A file of ours that is YAML; a line of it is a name and a JSON value."""
    pairs = (line.split(": ", 1) for line in file.read_text(encoding="utf-8").splitlines())
    return {name: json.loads(value) for name, value in pairs}


def parts_of(out: Path) -> dict[str, Path]:
    return {meta(file)["run_name"]: file.parent for file in out.glob("*/*/meta.yaml")}


def test_mlflow_holds_every_round(emulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mlruns"
    said = call(capsys, "export", emulated, "--mlflow", out)
    assert (said["out"], said["format"]) == (str(out), "mlflow")
    (experiment,) = out.iterdir()
    about = meta(experiment / "meta.yaml")
    assert (about["name"], about["experiment_id"]) == (emulated.name, experiment.name)
    parts = parts_of(out)
    assert set(parts) == {"fedavg_s4", "tifl_s4"}
    created_s = read_run(emulated).created_utc.timestamp()
    for name, folder in parts.items():
        result = load_result(emulated / name)
        lines = (folder / "metrics" / "energy_j_honest").read_text(encoding="utf-8").split("\n")
        stored = [line.split() for line in lines if line]
        assert [int(step) for *_, step in stored] == result.rounds["round"].tolist()
        assert [float(value) for _, value, _ in stored] == result.rounds["energy_j_honest"].tolist()
        end_s = (result.rounds["start_ns"] + result.rounds["duration_ns"]) * 1e-9
        assert [int(ms) for ms, *_ in stored] == [round((created_s + after) * 1000) for after in end_s]
        assert (folder / "params" / "protocol.k").read_text() == "3"
        assert (folder / "tags" / "joulefleet.cost_origin").read_text() == "literature"
        assert (folder / "tags" / "joulefleet.origin").read_text() == "emulated"
        about = meta(folder / "meta.yaml")
        assert about["status"] == 3
        assert about["artifact_uri"] == (folder / "artifacts").resolve().as_uri()
    assert not (parts["fedavg_s4"] / "metrics" / "cost_origin").exists()


def test_a_store_holds_several_runs_and_each_once(
    emulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mlruns"
    call(capsys, "export", emulated, "--mlflow", out)
    other = run(SMALL, seed=7, out=tmp_path / "single")
    call(capsys, "export", other.run_path, "--mlflow", out)
    assert set(parts_of(out)) == {"fedavg_s4", "tifl_s4", "fedavg_s7"}
    before = sorted(out.rglob("*"))
    error = call(capsys, "export", emulated, "--mlflow", out, code=1)["error"]
    assert "exists already" in error["message"]
    assert sorted(out.rglob("*")) == before


def test_an_emulation_under_way_is_not_called_finished(tmp_path: Path) -> None:
    result = run(SMALL, seed=7, out=tmp_path)
    record = result.path / EMULATION_FILE
    data = {**json.loads(record.read_text()), "rounds": None}
    data["scenario"]["task"]["options"] = {"../../../outside": 1}
    record.write_text(json.dumps(data))
    out = tmp_path / "mlruns"
    assert joulefleet(["export", str(result.run_path), "--mlflow", str(out)]) == 0
    (folder,) = parts_of(out).values()
    assert (meta(folder / "meta.yaml")["status"], meta(folder / "meta.yaml")["end_time"]) == (5, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([result.run_path.name, "mlruns"])
    assert not [path for path in out.rglob("outside") if not path.is_relative_to(folder / "params")]


def test_an_experiment_has_its_emulations(tmp_path: Path) -> None:
    stored = played(tmp_path, small_plan(seeds=(0,)))
    found = run_curves(StoredRun(stored))
    records = {file.parent.relative_to(stored).as_posix() for file in stored.rglob(EMULATION_FILE)}
    assert {part.name for part in found.parts} == records
    assert all(part.finished and len(part.curves["accuracy"]) == 4 for part in found.parts)


def test_a_bench_run_has_a_curve_per_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = stored_bench(tmp_path / "runs")
    found = run_curves(StoredRun(bench))
    assert len(found.parts) == 3
    assert {part.origin["origin"] for part in found.parts} == {"measured", "emulated"}
    for part in found.parts:
        assert [point.value for point in part.curves["duration_s"]] == pytest.approx(EPOCHS_S)
        assert [point.step for point in part.curves["energy_j"]] == [1, 2]
        powers = [point.value for point in part.curves["mean_power_w"]]
        assert powers == pytest.approx([TRAIN_W] * 2, rel=0.01)
    out = tmp_path / "mlruns"
    call(capsys, "export", bench, "--mlflow", out, "--format", "junit", "--out", tmp_path / "junit.xml")
    assert set(parts_of(out)) == {part.name for part in found.parts}
    assert (tmp_path / "junit.xml").is_file()


def test_what_is_no_number_is_no_point(emulated: Path) -> None:
    (tifl,) = [part for part in run_curves(StoredRun(emulated)).parts if part.name == "tifl_s4"]
    rounds = load_result(emulated / "tifl_s4").rounds
    assert rounds["test_accuracy"].isna().tolist() == [False, True, False, False]
    assert [point.step for point in tifl.curves["test_accuracy"]] == [0, 2, 3]
    first = tifl.curves["n_profiled"][0]
    assert first == Point(0, rounds["duration_ns"][0] * 1e-9, 20.0)


def test_without_tensorboard_it_says_what_to_install(
    emulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    error = call(capsys, "export", emulated, "--tensorboard", tmp_path / "logs", code=2)["error"]
    assert "needs the package tensorboard" in error["message"]
    assert "-e '.[tracking]'" in error["hint"]
    assert not list(tmp_path.iterdir())


def test_a_run_without_curves_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunStore(tmp_path).create("scale", kind="profiles") as stored:
        pass
    error = call(capsys, "export", stored.path, "--mlflow", tmp_path / "mlruns", code=6)["error"]
    assert "a run of kind 'profiles' without rounds or epochs" in error["message"]
    assert not (tmp_path / "mlruns").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to write"),
        (["--format", "csv"], "--format and --out go together"),
        (["--out", "new"], "--format and --out go together"),
        (["--mlflow", "new", "--max-rows", "10"], "--max-rows is for --format csv"),
    ],
)
def test_half_a_request_is_a_usage_error(
    emulated: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert message in call(capsys, "export", emulated, *arguments, code=2)["error"]["message"]
