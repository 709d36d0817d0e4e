"""Federated rounds on real agents over OpenSSH, under emulated meters that see what they use."""

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emulator.compare.load import compare_emulations
from emulator.round.outcome import COSTS, Accounting, Fate
from emulator.runs.emulation import emulate
from emulator.runs.result import Result, load_result
from emulator.runs.tables import clients_schema, rounds_schema
from emulator.scenario.load import load_scenario
from harness.bench.job.failures import AttemptRecord
from harness.cli import run as joulefleet
from harness.federate.files import FederateFiles, read_federate_files
from harness.federate.run import run_federation
from harness.outputs import OUTPUTS
from harness.profiles.library import build_run_profiles
from harness.report.bench.page import bench_page, rounds_section
from harness.report.page import REPORT_FILE
from harness.results.stored_run import StoredRun
from harness.rounds.measured import read_part
from harness.rounds.record import open_part, read_federated_rounds
from joulefleet.errors import ConfigError, DeviceError
from joulefleet.provenance import Origin
from joulefleet.records import read_record, write_record
from joulefleet.runstore import RunRecord, RunStatus, RunStore, read_journal, read_table
from tests.harness.federate.stored_federation import StoredFederation
from tests.harness.local_bench import LocalBench, local_bench

# Meters are recorded in real time: such tests run one after the other, not against each other.
pytestmark = pytest.mark.xdist_group("bench")

SCENARIO = """
name = "tiny"
[task]
name = "digits-mlp"
learning_rate = 0.02
batch_size = 4  # many steps: epochs have to be long against the time between two samples of the meter
[task.options]
samples_per_client = 600
[protocol]
rounds = 2
k = 1
candidates = "all"
local_epochs = 2
[selector]
name = "fedrank"
"""
SETTINGS = """
threads = 1
sync_pattern = false
[timing]
idle_s = 0.5
settle_s = 0
load_only_s = 0.5
deadline_s = 60
[retry]
attempts = 4
wait_s = 0.1
[[conditions]]
device = "beta"
from_round = 2
link_bps = 1e9
load = { name = "game", cpu_share = 0.2 }
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, sshd: str) -> Iterator[LocalBench]:
    kinds = dict.fromkeys(("alpha", "beta"), "monsoon-lvpm")
    with local_bench(tmp_path_factory.mktemp("bench"), sshd, kinds) as running:
        yield running


def files_of(bench: LocalBench, inventory: Path | None = None, **changes: Any) -> FederateFiles:
    scenario, settings = bench.folder / "tiny.toml", bench.folder / "federate.toml"
    scenario.write_text(SCENARIO)
    settings.write_text(SETTINGS)
    return read_federate_files(str(scenario), inventory or bench.inventory, settings, **changes)


@pytest.fixture(scope="module")
def done(bench: LocalBench) -> Result:
    """Two rounds of FedRank: stopped in the second, taken up again, then alpha is cut in it."""
    files, root = files_of(bench), bench.folder / "runs"
    stop, cut = threading.Event(), threading.Event()

    def stopping(_event: str, what: str, facts: dict[str, object]) -> None:
        if "alpha_federate_rep2" in what and facts.get("stage") == "round":
            stop.set()

    def cutting(_event: str, what: str, facts: dict[str, object]) -> None:
        if "alpha_federate_rep2" in what and facts.get("stage") == "round" and not cut.is_set():
            cut.set()
            bench.cut("alpha")
        raise BrokenPipeError("nobody reads the progress any more")

    with pytest.raises(KeyboardInterrupt):
        run_federation(files, root, stop=stop, listener=stopping, cache=bench.folder / "graphs")
    (run,) = RunStore(root).list()
    assert run.state == "interrupted"
    shutil.copytree(run.path / "checkpoint", bench.folder / "after-round-1")
    return run_federation(
        files, root, resume=run.path, listener=cutting, outputs=OUTPUTS, cache=bench.folder / "graphs"
    )


def test_the_page_stands_beside_the_evidence(done: Result) -> None:
    assert "federat" in (done.path / REPORT_FILE).read_text()


def test_rounds_are_stored_like_those_of_the_emulator(done: Result, tmp_path: Path) -> None:
    scenario = load_scenario("quick").model_copy(update={"protocol": done.record.scenario.protocol})
    with RunStore(tmp_path).create("quick", kind="emulation") as run:
        fast = scenario.trainer.model_copy(update={"workers": 1})
        selector = done.record.scenario.selector
        emulated = emulate(run, scenario.model_copy(update={"trainer": fast, "selector": selector}), 0)
    bounds = ["n_unknown", *(f"known_{w}_{a.value}" for w in ("time_s", "energy_j") for a in Accounting)]
    shared = [name for name in done.rounds.columns if name not in bounds]
    # By traces and batteries; a bench has none.
    replayed = {"devices_changed", "devices_left", "devices_low", "battery_low", "battery_median"}
    assert shared == [name for name in emulated.rounds.columns if name not in replayed]
    assert set(bounds) <= set(done.rounds.columns)
    assert read_table(done.path, "clients").schema.equals(clients_schema())
    assert done.record.rounds == 2
    assert list(done.rounds["round"]) == [1, 2]
    assert set(done.rounds["cost_origin"]) == {"emulated"}, "the meters are"
    assert set(done.rounds["training"]) == {"devices (onnxruntime)"}
    compared = compare_emulations([done.path])
    assert "on the bench" in compared.basis


def test_what_a_round_cost_is_what_its_captures_say(done: Result) -> None:
    clients = done.clients
    for record in read_federated_rounds(done.path):
        for part in record.parts:
            row = clients[(clients["round"] == record.number) & (clients["device"] == part.client)].iloc[0]
            if part.capture_sha256 is None:
                assert row[list(COSTS)].isna().all(), "not nothing: nobody knows"
                continue
            read = read_part(open_part(done.path, part), "marginal")
            assert row["probe_s"] == pytest.approx(read.readings["probe"].duration_s)
            assert row["train_j"] == pytest.approx(read.readings["train"].energy_j)
            assert (row["train_s"] > 0) == part.chosen
    first = done.rounds.iloc[0]
    mine = clients[clients["round"] == 1]
    counted = mine[["download_j", "probe_j", "train_j", "upload_j"]].to_numpy().sum()
    assert first["energy_j_honest"] == pytest.approx(counted)
    assert first["energy_j_honest"] >= first["energy_j_selected_only"] >= first["energy_j_free"]
    assert {f"time_s_{a.value}" for a in Accounting} <= set(done.rounds.columns)


def test_the_model_learns_from_what_devices_send(done: Result) -> None:
    first = done.rounds.iloc[0]
    assert (first["candidates"], first["chosen"], first["n_finished"], first["n_rejected"]) == (2, 1, 1, 1)
    assert first["accuracy_gain"] > 0.1
    assert done.record.test_accuracy is not None
    assert done.record.test_accuracy > 0.3, "ten classes"
    shards = {
        open_part(done.path, part).record.synthetic_data
        for record in read_federated_rounds(done.path)
        for part in record.parts
        if part.capture_sha256
    }
    assert shards == {False}


def test_a_lost_device_is_recorded_and_the_round_goes_on(done: Result) -> None:
    second = read_federated_rounds(done.path)[1]
    lost = {part.device: part for part in second.parts}
    assert lost["alpha"].capture_sha256 is None
    assert lost["alpha"].failure.startswith("round: ")
    assert lost["beta"].capture_sha256 is not None
    row = done.rounds.iloc[1]
    assert (row["n_left"], row["n_finished"]) == (1, 1)
    fates = dict(done.clients[done.clients["round"] == 2][["device", "fate"]].to_numpy())
    assert fates == {0: Fate.LEFT.value, 1: Fate.FINISHED.value}
    assert row["n_unknown"] == 1
    costs = [f"{what}_{a.value}" for what in ("time_s", "energy_j") for a in Accounting]
    table = read_table(done.path, "rounds").to_pylist()
    assert [table[1][name] for name in ("energy_j_honest", "time_s_honest", "energy_j", "reward")] == [
        None
    ] * 4
    beta = done.clients[(done.clients["round"] == 2) & (done.clients["device"] == 1)].iloc[0]
    of_beta_j = beta[["download_j", "probe_j", "train_j", "upload_j"]].sum()
    assert row["known_energy_j_honest"] == pytest.approx(of_beta_j)
    assert all(table[0][f"known_{name}"] == table[0][name] for name in costs), "all of the first is known"
    aside = [read_record(p / "attempt.json", AttemptRecord) for p in (done.path / "failed").iterdir()]
    assert {r.error_type for r in aside if "alpha" in r.job} >= {"Stopped", "DeviceUnreachable"}


def test_a_stopped_run_kept_its_finished_round(done: Result) -> None:
    events = list(read_journal(done.path / "journal.jsonl"))
    assert [e["round"] for e in events if e["event"] == "round"] == ["0001", "0002", "0002"]
    assert [e["event"] for e in events].count("registration") == 1
    assert len(list(done.path.glob("host_load-*.parquet"))) == 2
    starts = done.rounds["start_ns"].to_numpy()
    assert starts[1] == starts[0] + done.rounds["duration_ns"].iloc[0], (
        "the time between sessions is not in it"
    )
    assert (done.rounds["idle_ns"] >= 0).all()


def test_a_round_that_a_kill_has_cut_off_from_its_checkpoint_is_played_again(
    bench: LocalBench, done: Result, tmp_path: Path
) -> None:
    """The kill came when the second round was stored and the checkpoint still that of the first."""
    copy = tmp_path / done.path.name
    shutil.copytree(done.path, copy)
    shutil.rmtree(copy / "checkpoint")
    shutil.copytree(bench.folder / "after-round-1", copy / "checkpoint")
    record = read_record(copy / "run.json", RunRecord)
    write_record(copy / "run.json", record.model_copy(update={"status": RunStatus.RUNNING}), replace=True)
    stop = threading.Event()
    stop.set()
    with pytest.raises(KeyboardInterrupt):
        run_federation(files_of(bench), tmp_path, resume=copy, stop=stop, cache=bench.folder / "graphs")
    assert [r.number for r in read_federated_rounds(copy)] == [1]
    assert read_table(copy, "rounds").column("round").to_pylist() == [1]
    aside = [read_record(p / "attempt.json", AttemptRecord) for p in (copy / "failed").iterdir()]
    assert [r.job for r in aside if r.error_type == "Killed"] == ["0006_beta_federate_rep2"]
    kept = {path.name for path in (copy / "jobs").iterdir()}
    assert kept == {p.name for p in (done.path / "jobs").iterdir()} - {"0006_beta_federate_rep2"}


def test_a_condition_is_in_the_capture_and_in_the_record(done: Result) -> None:
    rounds = read_federated_rounds(done.path)
    beta = [next(p for p in record.parts if p.device == "beta") for record in rounds]
    assert [part.link_bps for part in beta] == [None, 1e9]
    loads = [open_part(done.path, part).record.background for part in beta]
    assert [(load.name, load.kind) for load in loads] == [("none", "none"), ("game", "cpu")]


def test_the_selector_saw_what_was_reported(bench: LocalBench, done: Result) -> None:
    """What the server was told of the probes is in its checkpoint, and near what was measured in the end."""
    from emulator.runs.checkpoint import load_checkpoint

    state = load_checkpoint(done.path)
    assert state is not None
    reported = state["reported"]
    beta = done.clients[(done.clients["round"] == 2) & (done.clients["device"] == 1)].iloc[0]
    assert reported["epoch_s"][1] == pytest.approx(beta["probe_s"], rel=1e-6)
    assert np.isfinite(reported["epoch_j"]).all()
    assert np.isfinite(reported["comm_s"]).all(), "from the registration"
    assert reported["loss"][1] == pytest.approx(beta["loss"])


def test_a_page_and_a_comparison(done: Result, capsys: pytest.CaptureFixture[str]) -> None:
    assert joulefleet(["report", str(done.path)]) == 0
    html = (done.path / "report.html").read_text()
    assert "energy, selected only" in html
    for accuracy in done.rounds["test_accuracy"]:
        assert f"{100 * accuracy:.4g} %" in html
    assert "1 of 2" in html
    assert f"&gt;= {done.rounds['known_energy_j_honest'].iloc[1]:.4g}"[:8] in html
    capsys.readouterr()
    assert joulefleet(["compare", str(done.path), "--target", "0.3"]) == 0
    text = capsys.readouterr().out
    assert "warning: fedrank: of 1 participation not every cost is known" in text
    (energy,) = [
        line.split()
        for line in text.split("energy per round")[1].splitlines()
        if line.lower().startswith("fedrank")
    ]
    assert energy[1] == ">="
    assert energy[-1] == "-", "no rank"
    assert joulefleet(["compare", str(done.path), "--target", "0.3", "--json"]) == 0
    cell = json.loads(capsys.readouterr().out)["methods"]["fedrank"]["round_energy_j"]
    assert (cell["unknown"], cell["rank"]) == (1, None)


def test_curves_claim_no_more_than_their_weakest_round(tmp_path: Path) -> None:
    """An emulated meter may take part in one round, and only real ones in the last."""
    schema = rounds_schema((), on_bench=True)
    plain = {field.name: "cpu" if field.type == pa.string() else 1 for field in schema}
    plain |= {f"n_{fate.value}": int(fate is Fate.FINISHED) for fate in Fate}
    rows = [
        {**plain, "round": number, "start_ns": number, "cost_origin": origin}
        for number, origin in ((1, "emulated"), (2, "measured"))
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / "rounds.parquet")
    section = rounds_section(tmp_path)
    assert {chart.origin for chart in section.charts} == {"emulated"}
    assert [row[-1] for row in section.tables[0].rows] == [Origin.EMULATED, Origin.MEASURED]


def test_the_page_of_a_run_that_ended_before_its_first_round(tmp_path: Path) -> None:
    run = StoredFederation(tmp_path)
    assert "No round has been closed." in bench_page(StoredRun(run.path)).html()


def test_a_resumed_run_has_to_be_the_same(bench: LocalBench, done: Result) -> None:
    with pytest.raises(ConfigError, match="another configuration"):
        run_federation(files_of(bench, seed=9), bench.folder, resume=done.path, cache=bench.folder / "graphs")


def test_a_dry_run_touches_nothing(bench: LocalBench, capsys: pytest.CaptureFixture[str]) -> None:
    files_of(bench)
    root = bench.folder / "dry"
    arguments = ["bench", "federate", str(bench.folder / "tiny.toml"), "--inventory", str(bench.inventory)]
    assert joulefleet([*arguments, "--root", str(root), "--dry-run", "--selector", "oort", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["selector"], said["devices"], said["rounds"]) == ("oort", ["alpha", "beta"], 2)
    assert not root.exists()


def test_the_command_says_what_is_wrong(bench: LocalBench, capsys: pytest.CaptureFixture[str]) -> None:
    files_of(bench)
    arguments = ["bench", "federate", str(bench.folder / "tiny.toml"), "--inventory", str(bench.inventory)]
    assert joulefleet([*arguments, "--selector", "speed_oracle"]) == 3
    assert "is an oracle" in capsys.readouterr().err
    assert joulefleet([*arguments, "--profiles", str(bench.folder)]) == 3
    assert "no profiles in it" in capsys.readouterr().err


def test_a_fleet_that_is_gone_leaves_the_run_open(bench: LocalBench, tmp_path: Path) -> None:
    """Nobody can be registered: there is nothing to choose from."""
    inventory = tmp_path / "gone.toml"
    text = bench.inventory.read_text()
    for server in bench.servers.values():
        text = text.replace(f"port = {server.port}\n", "port = 1\n")
    inventory.write_text(text)
    shutil.copy(bench.inventory.with_suffix(".known_hosts"), inventory.with_suffix(".known_hosts"))
    with pytest.raises(DeviceError, match="not a single device could be asked"):
        run_federation(files_of(bench, inventory), tmp_path / "runs", cache=bench.folder / "graphs")


def test_the_command_plays_with_profiles_of_an_earlier_run(
    bench: LocalBench, done: Result, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """No registration is needed then, and a federated run can be profiled like any other."""
    copy = tmp_path / done.path.name
    shutil.copytree(done.path, copy)
    profiles = [stored.profile for stored in build_run_profiles(copy).profiles]
    assert len(profiles) == 2
    notes = [f"profile of {profile.device}: {note}" for profile in profiles for note in profile.notes]
    files_of(bench)
    arguments = [
        "bench", "federate", str(bench.folder / "tiny.toml"), "--inventory", str(bench.inventory),
        "--settings", str(bench.folder / "federate.toml"), "--selector", "oort", "--rounds", "1",
        "--root", str(tmp_path / "runs"), "--profiles", str(copy),
    ]  # fmt: skip
    larger = tmp_path / "larger.toml"
    larger.write_text(SCENARIO.replace("batch_size = 4", "batch_size = 8"))
    assert joulefleet(["bench", "federate", str(larger), *arguments[3:]]) == 3
    assert "alpha was measured with batch_size = 4, the rounds with 8" in capfd.readouterr().err
    assert not (tmp_path / "runs").exists(), "found out before anything was touched"
    assert joulefleet(arguments) == 0
    out, err = capfd.readouterr()
    assert "1 rounds on 2 devices with oort [emulated]" in out
    assert "honest:" in out
    assert "registration" not in err
    (run,) = RunStore(tmp_path / "runs").list()
    assert run.state == "complete"
    registered = load_result(run.path).record.facts["registration_notes"]
    # The earlier run may have measured no wait; then this is said too, and nothing else.
    unmeasured = "registered as costing nothing, since a profile lacks it: power while waiting"
    assert registered in (notes, [*notes, unmeasured])
    (record,) = read_federated_rounds(run.path)
    assert [part.chosen for part in record.parts] == [True], "Oort chooses before anybody trains"
    if record.parts[0].capture_sha256 is not None:  # a busy machine may lose samples
        assert joulefleet(["probing", "fidelity", str(run.path), "--profiles", str(copy), "--json"]) == 0
        said = json.loads(capfd.readouterr().out)
        assert {one["what"] for one in said["compared"]} == {"download", "train", "upload", "device", "round"}
