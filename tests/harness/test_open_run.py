"""Runs as data frames."""

import json
from pathlib import Path

import numpy as np
import pytest

import harness
from harness.results.decimate import decimate, gaps_ns
from joulefleet.errors import StorageError
from joulefleet.runstore import RunStore
from tests.harness.profile_captures import IDLE_W, PERIOD_NS, one_round, write
from tests.harness.stored_bench import EPOCHS_S, GAIN_REL, TRAIN_W, recording, stored_bench

# Meters are recorded in real time: such tests run one after the other, not against each other.
pytestmark = pytest.mark.xdist_group("bench")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored_bench(tmp_path_factory.mktemp("runs"))


def test_epochs_are_a_data_frame(bench: Path) -> None:
    epochs = harness.open_run(bench).epochs()
    assert len(epochs) == 6
    assert set(epochs["device"]) == {"board", "phone"}
    first = epochs[(epochs["device"] == "board") & (epochs["background"] == "none") & (epochs["epoch"] == 1)]
    (row,) = first.to_dict("records")
    assert row["duration_s"] == pytest.approx(EPOCHS_S[0])
    # An edge lies between two samples, so an energy is off by a step of power times a sample's time at most.
    assert row["energy_j"] == pytest.approx(TRAIN_W * EPOCHS_S[0], abs=0.003)
    assert row["mean_power_w"] == pytest.approx(TRAIN_W, abs=0.003)
    assert row["net_j"] == pytest.approx((TRAIN_W - IDLE_W) * EPOCHS_S[0], abs=0.003)
    assert row["energy_half_width_95_j"] == pytest.approx(GAIN_REL * TRAIN_W * EPOCHS_S[0], rel=0.02)
    assert row["start_s"] == pytest.approx(2.5, abs=0.001)  # idle 2.0 s, a gap of 0.1 s, download 0.4 s
    assert (row["usable"], row["throttled"], row["problems"]) == (True, False, "")
    assert epochs.groupby("device")["origin"].unique().map(list).to_dict() == {
        "board": ["measured"],
        "phone": ["emulated"],
    }


def test_phases_add_what_lies_around_the_epochs(bench: Path) -> None:
    phases = harness.open_run(bench).phases()
    job = phases[phases["job"].str.contains("board") & phases["job"].str.contains("game")]
    assert list(job["phase"]) == [
        "idle", "download", "load", "epoch", "wait", "epoch", "upload", "idle",
    ]  # fmt: skip
    assert job["start_s"].is_monotonic_increasing
    assert job.set_index("phase")["mean_power_w"]["load"] == pytest.approx(2.0, rel=1e-3)


def test_profiles_have_a_row_per_phase_load_and_power(bench: Path) -> None:
    profiles = harness.open_run(bench).profiles()
    board = profiles[profiles["device"] == "board"]
    assert list(board["phase"]) == [
        "probe", "epoch", "round", "download", "upload", "epoch", "load only", "idle", "wait",
    ]  # fmt: skip
    beside = board[board["background"] == "game"].iloc[0]
    assert beside["marginal_j"] == pytest.approx((TRAIN_W - 2.0) * EPOCHS_S[1], rel=1e-3)
    assert beside["marginal_half_width_95_j"] > 0
    assert set(profiles[profiles["device"] == "phone"]["origin"]) == {"emulated"}


def test_findings_name_attempts_and_messages(bench: Path) -> None:
    findings = harness.open_run(bench).findings()
    failed = findings[findings["code"] == "attempt_failed"]
    assert sorted(failed["severity"]) == ["error", "error", "warning"]  # one job had a capture in the end
    assert (findings["code"] == "device_problem").sum() == 3
    order = ["error", "warning", "info"]
    assert [order.index(s) for s in findings["severity"]] == sorted(map(order.index, findings["severity"]))


def test_markers_are_on_both_clocks(bench: Path) -> None:
    markers = harness.open_run(bench).markers()
    assert set(markers["edge"]) == {"start", "end"}
    download = markers[(markers["phase"] == "download")].iloc[0]
    assert json.loads(download["extra"]) == {"bytes": 1000}
    assert (markers["t_ns"] == markers["t_dev_ns"]).all()  # the fit of these captures has no offset


def test_jobs_tell_what_became_of_each(bench: Path) -> None:
    jobs = harness.open_run(bench).jobs()
    assert jobs["state"].value_counts().to_dict() == {"pending": 4, "finished": 3, "failed": 1}


def test_what_cannot_be_read_or_was_changed_is_a_finding_and_weakens_the_claim(tmp_path: Path) -> None:
    run = stored_bench(tmp_path)
    torn, changed, *_ = sorted((run / "jobs").glob("*_board_*"))
    (torn / "capture.json").write_text("{", encoding="utf-8")
    samples = changed / "samples.arrows"
    data = bytearray(samples.read_bytes())
    data[-2000] ^= 1
    samples.write_bytes(data)
    opened = harness.open_run(run)
    findings = opened.findings().set_index("code")
    assert findings.loc["files_changed", "job"] == changed.name
    assert findings.loc["files_changed", "message"].endswith("samples.arrows")
    assert torn.name in list(findings.loc[["not_usable"], "job"])
    origins = opened.epochs().set_index("job")["origin"]
    assert set(origins[changed.name]) == {"imported"}
    assert set(opened.profiles()["device"]) == {"phone"}  # nothing is built from what was changed


def test_parts_that_are_missing_leave_the_others_be(tmp_path: Path) -> None:
    run = stored_bench(tmp_path)
    job = next((run / "jobs").glob("*_board_*-none_*"))
    (job / "samples.arrows").unlink()
    attempt = next((run / "failed").iterdir())
    (attempt / "attempt.json").write_text("nothing", encoding="utf-8")
    plan = run / "config" / "plan.toml"
    plan.write_text(plan.read_text() + "[later]\nversion = 2\n")
    opened = harness.open_run(run)
    findings = opened.findings()
    unusable = findings[findings["code"] == "not_usable"].set_index("job")["message"]
    assert "samples.arrows" in unusable[job.name]
    assert "not readable as JSON" in unusable[f"failed/{attempt.name}"]
    assert "later: unknown key" in unusable["config"]
    assert len(opened.epochs()) == 4
    # Without a plan, captures and failed attempts tell of jobs.
    assert sorted(opened.jobs()["state"]) == ["failed", "finished", "finished"]


def test_a_run_without_captures_gives_empty_frames_with_their_columns(tmp_path: Path) -> None:
    with RunStore(tmp_path).create("nothing", kind="bench") as run:
        pass
    opened = harness.open_run(str(run.path))
    for frame in (opened.epochs(), opened.phases(), opened.profiles(), opened.findings(), opened.markers()):
        assert len(frame) == 0
        assert len(frame.columns) > 5


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not a run"):
        harness.open_run(tmp_path)


@pytest.mark.parametrize("max_samples", [4, 100, 4001, 99_999])
def test_decimation_keeps_every_peak_and_the_bound(tmp_path: Path, max_samples: int) -> None:
    rng = np.random.default_rng(3)
    watts = rng.normal(1.0, 0.1, 100_000)
    watts[12_345], watts[77_777] = 9.0, 0.001
    found = decimate(recording(tmp_path / "r", [watts]), max_samples)
    assert len(found) <= max_samples
    assert not found.is_complete
    assert found.power_w.max() == pytest.approx(9.0)
    assert found.power_w.min() == pytest.approx(0.001)
    assert (np.diff(found.t_ns) > 0).all()
    # Every kept sample is one that was recorded, at its own time.
    assert found.power_w == pytest.approx(watts[found.t_ns // PERIOD_NS], rel=1e-6)


def test_a_short_recording_is_not_decimated(tmp_path: Path) -> None:
    found = decimate(recording(tmp_path / "r", [np.ones(500), np.ones(300)], lost=3), 800)
    assert (len(found), found.is_complete) == (800, True)


def test_an_empty_recording_thins_to_nothing(tmp_path: Path) -> None:
    assert len(decimate(recording(tmp_path / "r", []), 100)) == 0


def test_gaps_that_are_bridged_are_none(tmp_path: Path) -> None:
    assert gaps_ns(recording(tmp_path / "short", [np.ones(500)] * 2, lost=10), 5) == []
    long = recording(tmp_path / "long", [np.ones(500)] * 3, lost=400)
    assert gaps_ns(long, 5) == [(499 * PERIOD_NS, 900 * PERIOD_NS), (1399 * PERIOD_NS, 1800 * PERIOD_NS)]
    assert len(gaps_ns(long, 1)) == 1


def test_epochs_in_a_gap_have_no_energy_and_say_why(tmp_path: Path) -> None:
    with RunStore(tmp_path).create("short", kind="demo") as run:
        cut_off = one_round(EPOCHS_S)
        write(run.path / "bench", cut_off)
        markers = run.path / "bench" / "markers.jsonl"
        lines = [json.loads(line) for line in markers.read_text().splitlines()]
        for line in lines:
            line["t_dev_ns"] += 60 * 10**9 * (line["kind"] == "epoch" and line["epoch"] == 2)
        markers.write_text("".join(json.dumps(line) + "\n" for line in lines))
    epochs = harness.open_run(run.path).epochs()
    assert list(epochs["usable"]) == [True, False]
    assert "after the last sample" in epochs["problems"][1]
    assert np.isnan(epochs["energy_j"][1])
