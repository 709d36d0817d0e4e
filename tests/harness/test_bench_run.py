"""Plans run for real: OpenSSH servers on this machine as devices, emulated meters that see what they use."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import harness
from device_agents.protocol import Phase
from device_agents.session.agent_session import Ping
from device_agents.transport.ssh import SshTransport
from harness.bench.estimate import DISK_B_PER_S
from harness.bench.job.failures import AttemptRecord
from harness.bench.job.hooks import Stage
from harness.bench_run.queue import is_narrow
from harness.bench_run.run import BenchFiles, BenchResult, read_bench_files, run_bench
from harness.cli import run as joulefleet
from harness.clock import align, burst_runs
from harness.evidence.capture import open_capture, verify_capture
from harness.outputs import OUTPUTS
from harness.profiles.library import Built, build_run_profiles, read
from harness.results.overview import overview
from harness.rounds.host_load import HostLoad
from joulefleet.errors import ConfigError, JoulefleetError, StorageError, StorageFull
from joulefleet.provenance import Origin
from joulefleet.records import read_record
from joulefleet.runstore import RunStore, read_journal
from power.emulated.signals import process_tree
from power.recording import open_recording
from tests.harness.local_bench import FAST, IDLE_W, LocalBench, Watch, local_bench

# Meters are recorded in real time: such tests run one after the other, not against each other.
pytestmark = pytest.mark.xdist_group("bench")

LOADS = ['name = "none"\ncpu_share = 0', 'name = "game"\ncpu_share = 0.5']
ONCE = {**FAST, "repetitions": "count = 1"}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, sshd: str) -> Iterator[LocalBench]:
    folder = tmp_path_factory.mktemp("bench")
    with local_bench(folder, sshd, {"alpha": "monsoon-lvpm", "beta": "ina219"}) as running:
        yield running


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run the command line in this process and give what ``--json`` says."""

    def run(*arguments: str, code: int = 0) -> Any:
        capfd.readouterr()
        returned = joulefleet([*arguments, "--json"])
        out, err = capfd.readouterr()
        assert returned == code, out + err
        return json.loads(out)

    return run


def events(run: Path, job: str = "") -> list[dict[str, Any]]:
    return [r for r in read_journal(run / "journal.jsonl") if not job or job in r.get("job", "")]


def tree_of(folder: Path) -> set[tuple[str, int]]:
    return {(str(p), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def complete(bench: LocalBench) -> BenchResult:
    """A complete run of four jobs."""
    plan = bench.write_plan(ONCE, LOADS, warmup_epochs=1)
    return run_bench(read_bench_files(plan, bench.inventory), bench.folder / "runs", outputs=OUTPUTS)


def test_a_dry_run_touches_nothing(bench: LocalBench, ask: Callable[..., Any]) -> None:
    plan = bench.write_plan(ONCE, LOADS)
    before = tree_of(bench.folder)
    said = ask("bench", "run", str(plan), "--inventory", str(bench.inventory), "--dry-run",
               "--root", str(bench.folder / "dry"))  # fmt: skip
    assert len(said["jobs"]) == 4
    assert said["is_lower_bound"]
    assert said["duration_s"] > 2.0
    # Not a file changed: no connection in a server's log, no sample in a meter's record of the truth.
    assert tree_of(bench.folder) == before


def test_every_job_becomes_a_whole_capture(complete: BenchResult) -> None:
    assert len(complete.outcomes.finished) == 4
    assert RunStore(complete.path.parent).list()[0].state == "complete"
    host = HostLoad.read(complete.path)
    for folder in complete.outcomes.finished.values():
        capture = open_capture(folder)
        record = capture.record
        epoch = capture.phases()[-3]
        assert host.between(epoch.start_ns, epoch.end_ns) is not None, "how busy this machine was is kept"
        assert verify_capture(capture) == []
        assert (record.workload, record.backend, record.dataset) == ("softmax", "numpy", "synthetic")
        assert (record.local_epochs, record.warmup_epochs, record.repetition) == (2, 1, 1)
        assert record.capture_id == f"{complete.path.name.split('_')[-1]}/{folder.name}"
        assert record.device.cpus == os.cpu_count()
        assert record.threads == 0
        assert record.epochs_cpu_s > 0
        assert len(record.pings) == 40
        assert capture.provenance().origin.value == "emulated"
        kinds = [(p.phase, p.epoch) for p in capture.phases()]
        loaded = record.background.kind == "cpu"
        assert kinds == [
            (Phase.SYNC, 0),
            (Phase.DOWNLOAD, 0),
            (Phase.SETUP, 0),
            *([(Phase.LOAD, 0)] if loaded else []),
            (Phase.WARMUP, 1),
            (Phase.EPOCH, 1),
            (Phase.WAIT, 0),
            (Phase.EPOCH, 2),
            (Phase.UPLOAD, 0),
            (Phase.SYNC, 0),
        ]
        if loaded:
            assert record.background.load == pytest.approx(min(1, 0.5 / os.cpu_count()))
            assert record.background.used_cpu_s > 0
        telemetry = capture.telemetry()
        assert telemetry is not None
        assert telemetry.num_rows > 0


def test_the_page_and_the_results_stand_beside_the_evidence(complete: BenchResult) -> None:
    assert "<html" in (complete.path / "report.html").read_text()
    assert (complete.path / "junit.xml").read_text().count("<testcase ") == 4
    epochs = harness.open_run(complete.path).epochs()
    assert len(epochs) == 4 * 2
    for name, folder in complete.outcomes.finished.items():
        of_job = pq.read_table(folder / "epochs.parquet").to_pandas()
        assert of_job.equals(epochs[epochs["job"] == name].reset_index(drop=True))


def test_the_clock_can_be_computed_again_from_the_capture(complete: BenchResult) -> None:
    for folder in complete.outcomes.finished.values():
        capture = open_capture(folder)
        pings = [Ping(**ping.model_dump()) for ping in capture.record.pings]
        again = align(capture.recording, pings, burst_runs(capture.markers))
        assert (again.fit, again.bursts) == (capture.record.clock, capture.record.bursts)
        assert [burst.when for burst in again.bursts] == ["before", "after"]
        assert all(burst.correlation is not None for burst in again.bursts)


def test_a_complete_run_has_its_profiles(complete: BenchResult) -> None:
    assert complete.built.problems == ()
    assert {stored.profile.device for stored in complete.built.profiles} == {"alpha", "beta"}
    for stored in complete.built.profiles:
        assert stored.path is not None
        assert stored.path.parent == complete.path / "profiles"
        assert read(stored.path).profile.origin is Origin.EMULATED
    again = build_run_profiles(complete.path)
    assert [stored.path for stored in again.profiles] == [s.path for s in complete.built.profiles]


def test_the_meter_runs_first_and_last(complete: BenchResult) -> None:
    for folder in complete.outcomes.finished.values():
        capture = open_capture(folder)
        blocks = list(capture.recording.blocks())
        first_ns, last_ns = int(blocks[0].t_ns[0]), int(blocks[-1].t_ns[-1])
        before, after = capture.record.idle
        assert first_ns < min(p.sent_ns for p in capture.record.pings) < before.start_ns
        assert before.end_ns < capture.phases()[0].start_ns
        assert capture.phases()[-1].end_ns < after.start_ns
        assert after.end_ns < max(p.received_ns for p in capture.record.pings) < last_ns


def test_stages_are_journaled_in_their_order(complete: BenchResult) -> None:
    for name in complete.outcomes.finished:
        attempt = open_capture(complete.path / "jobs" / name).record.attempt
        noted = [r for r in events(complete.path, name) if r["attempt"] == attempt]
        assert [r["stage"] for r in noted[:-1]] == [stage.value for stage in Stage]
        assert noted[-1]["event"] == "finished"


def test_devices_work_at_the_same_time_but_each_on_one_job(complete: BenchResult) -> None:
    running: dict[str, str] = {}
    most = 0
    for record in events(complete.path):
        device = record.get("job", "_").split("_")[1]
        if record["event"] == "stage":
            assert running.setdefault(device, record["job"]) == record["job"]
        elif record["event"] in ("finished", "attempt_failed"):
            del running[device]
        most = max(most, len(running))
    assert most == 2


def test_idle_watts_are_those_of_the_load_model(complete: BenchResult, ask: Callable[..., Any]) -> None:
    shown = ask("bench", "show", str(complete.path), "1")
    assert min(shown["idle_power_w"]) == pytest.approx(IDLE_W, abs=0.15)
    assert shown["energy_per_epoch_j"] > 0
    lines = ask("bench", "show", str(complete.path))["jobs"]
    assert [line["origin"] for line in lines] == ["emulated"] * 4
    assert "did you mean" in ask("bench", "show", str(complete.path), "0001_alpa_softmax-numpy-none_rep1",
                                 code=3)["error"]["hint"]  # fmt: skip


def test_the_status_of_a_complete_run(complete: BenchResult, ask: Callable[..., Any]) -> None:
    said = ask("bench", "status", str(complete.path))
    assert (said["state"], said["counts"]) == ("complete", {"finished": 4})
    assert joulefleet(["bench", "status", str(complete.path)]) == 0
    assert joulefleet(["bench", "show", str(complete.path)]) == 0
    assert joulefleet(["bench", "show", str(complete.path), "2"]) == 0


def test_a_complete_run_is_not_resumed(bench: LocalBench, complete: BenchResult) -> None:
    plan = bench.write_plan(ONCE, LOADS, warmup_epochs=1)
    with pytest.raises(StorageError, match="is complete"):
        run_bench(read_bench_files(plan, bench.inventory), bench.folder, resume=complete.path)


def test_the_estimated_disk_space_is_what_is_used(complete: BenchResult) -> None:
    for folder in complete.outcomes.finished.values():
        recording = open_recording(folder)
        seconds = recording.record.n_samples / recording.record.info.rate_hz
        bulk = sum((folder / name).stat().st_size for name in ("samples.arrows", "raw.bin"))
        assert bulk / seconds == pytest.approx(DISK_B_PER_S[recording.record.info.kind], rel=0.15)


def test_precision_is_judged_from_the_captures(complete: BenchResult) -> None:
    same = [f for n, f in complete.outcomes.finished.items() if "alpha" in n]
    assert not is_narrow(same[:1], 0.5)
    assert not is_narrow(same, 1e-9)
    assert is_narrow(same, 1e9)


def files_of(bench: LocalBench, *arguments: Any, **top: Any) -> BenchFiles:
    return read_bench_files(bench.write_plan(*arguments, **top), bench.inventory)


def failed_attempts(run: Path) -> dict[str, AttemptRecord]:
    return {p.parent.name: read_record(p, AttemptRecord) for p in (run / "failed").glob("*/attempt.json")}


def test_a_device_cut_and_a_meter_unplugged_are_survived(bench: LocalBench) -> None:
    def unplug() -> None:
        bench.unplug("beta")
        bench.plug("beta")

    slow = {**ONCE, "timing": ONCE["timing"].replace("idle_s = 0.5", "idle_s = 1.0")}
    files = files_of(bench, slow, local_epochs=20)
    watch = Watch(alpha_round=lambda: bench.cut("alpha"), beta_idle_before=unplug)
    done = run_bench(files, bench.folder / "runs", view=watch)
    assert len(done.outcomes.finished) == 2
    attempts = failed_attempts(done.path)
    (cut,) = (done.path / "failed" / n for n, a in attempts.items() if a.error_type == "DeviceUnreachable")
    kept = [json.loads(line)["kind"] for line in (cut / "device_markers.jsonl").read_text().splitlines()]
    assert "sync" in kept  # fetched from the device when it was back
    assert len(pq.read_table(cut / "telemetry.parquet")) > 0
    assert [row["kind"] for row in read_journal(cut / "host_times.jsonl")] == [*["ping"] * 20, "idle"]
    kinds = {(n.split("_")[1], a.error_type, a.stage, a.transient) for n, a in attempts.items()}
    assert ("alpha", "DeviceUnreachable", "round", True) in kinds
    assert ("beta", "MeterDisconnected", "idle_before", True) in kinds
    for name, attempt in attempts.items():
        kept = done.path / "failed" / name
        assert attempt.trace
        if attempt.stage != "meter":  # where it was not there yet
            assert open_recording(kept).record.n_samples > 0
            assert (kept / "markers.jsonl").exists()
    assert min(open_capture(f).record.attempt for f in done.outcomes.finished.values()) >= 2


def test_a_round_that_fails_keeps_what_the_device_can_still_tell(bench: LocalBench) -> None:
    short = {**ONCE, "timing": ONCE["timing"].replace("deadline_s = 60", "deadline_s = 2")}
    with pytest.raises(JoulefleetError, match="did not end before its deadline"):
        run_bench(
            files_of(bench, short, local_epochs=10_000, devices=["alpha"]), bench.folder / "runs-deadline"
        )
    (run,) = (bench.folder / "runs-deadline").iterdir()
    (kept,) = (n for n, a in failed_attempts(run).items() if "deadline" in a.message)
    kept = run / "failed" / kept
    assert len(pq.read_table(kept / "telemetry.parquet")) > 0
    assert (kept / "agent.log").exists()
    assert list(read_journal(kept / "device_markers.jsonl")) == list(read_journal(kept / "markers.jsonl"))
    assert [row["kind"] for row in read_journal(kept / "host_times.jsonl")] == [*["ping"] * 20, "idle"]


def load_workers(bench: LocalBench, device: str) -> list[int]:
    tree = process_tree(bench.servers[device].process.pid)
    return [pid for pid in tree if b"load_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_background_load_that_dies_is_measured_again(bench: LocalBench) -> None:
    def kill_the_load() -> None:
        deadline_s = time.monotonic() + 60
        jobs = bench.folder / "state-alpha" / "jobs"
        while not any('"kind":"load"' in p.read_text() for p in jobs.glob("*/journal.jsonl")):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        for pid in load_workers(bench, "alpha"):
            os.kill(pid, signal.SIGKILL)

    slow = {**ONCE, "timing": ONCE["timing"].replace("load_only_s = 0.5", "load_only_s = 2.0")}
    watch = Watch(alpha_round=kill_the_load)
    done = run_bench(files_of(bench, slow, LOADS[1:], devices=["alpha"]), bench.folder / "runs", view=watch)
    (folder,) = done.outcomes.finished.values()
    assert open_capture(folder).record.background.used_cpu_s
    failed = {(a.error_type, a.stage, a.message) for a in failed_attempts(done.path).values()}
    lost = "1 of 1 workers of the background load died during the round"
    assert ("DataQualityError", "verify", lost) in failed
    for name in failed_attempts(done.path):
        assert (done.path / "failed" / name / "telemetry.parquet").exists()


def test_the_idle_device_hears_as_little_as_the_training_one(
    bench: LocalBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent: list[tuple[int, int]] = []
    without_keepalive = SshTransport.without_keepalive

    @contextlib.contextmanager
    def timed(self: SshTransport) -> Iterator[None]:
        with without_keepalive(self):
            began_ns = time.monotonic_ns()
            yield
            silent.append((began_ns, time.monotonic_ns()))

    monkeypatch.setattr(SshTransport, "without_keepalive", timed)
    calm = {**ONCE, "timing": ONCE["timing"].replace("settle_s = 0", "settle_s = 0.3")}
    done = run_bench(files_of(bench, calm, devices=["alpha"]), bench.folder / "runs")
    (folder,) = done.outcomes.finished.values()
    capture = open_capture(folder)
    epochs = [(p.start_ns, p.end_ns) for p in capture.phases() if p.phase is Phase.EPOCH]
    for start_ns, end_ns in [*epochs, *((w.start_ns, w.end_ns) for w in capture.record.idle)]:
        assert any(began_ns <= start_ns and end_ns <= ended_ns for began_ns, ended_ns in silent)
    for window in capture.record.idle:  # radio and processor have had time to fall asleep
        assert any(window.start_ns - began_ns >= 0.3e9 and window.end_ns <= end for began_ns, end in silent)
    assert not (folder / "host_times.jsonl").exists()  # all of it is in the capture


def test_an_agent_that_crashes_in_setup_is_tried_twice_and_says_how(
    bench: LocalBench, tmp_path: Path
) -> None:
    wrapper = tmp_path / "python"
    (tmp_path / "numpy.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    wrapper.write_text(f"#!/bin/sh\nPYTHONPATH='{tmp_path}' exec '{sys.executable}' \"$@\"\n")
    wrapper.chmod(0o755)
    good = bench.inventory.read_text()
    bench.inventory.write_text(good.replace(f'python = "{sys.executable}"', f'python = "{wrapper}"', 1))
    sections = {**ONCE, "retry": "attempts = 6\nwait_s = 0.1"}
    try:
        with pytest.raises(JoulefleetError, match=r"killed by SIGSEGV"):
            run_bench(files_of(bench, sections, devices=["alpha"]), tmp_path / "runs")
    finally:
        bench.inventory.write_text(good)
    (run,) = RunStore(tmp_path / "runs").list()
    attempts = failed_attempts(run.path).values()
    assert [(a.error_type, a.stage) for a in attempts] == [("AgentDied", "round")] * 2


def test_a_run_that_will_not_fit_on_its_disk_is_refused(
    bench: LocalBench, small_disk: Callable[[], Path]
) -> None:
    files = files_of(bench, {**ONCE, "timing": "idle_s = 30"})
    root = small_disk() / "runs"
    with pytest.raises(StorageFull, match=r"MB free, and the recordings of 2 jobs take at least") as caught:
        run_bench(files, root)
    assert not root.exists()
    assert "--root" in caught.value.hint
    assert caught.value.hint.endswith(f"then: joulefleet {' '.join(files.words)}")


def test_a_device_that_is_gone_does_not_stop_the_others_and_is_resumed(bench: LocalBench) -> None:
    sections = {**ONCE, "retry": "attempts = 4\nwait_s = 0.1"}
    good = bench.inventory.read_text()
    port = bench.servers["beta"].port
    assert f"port = {port}" in good
    bench.inventory.write_text(good.replace(f"port = {port}", "port = 1"))
    root = bench.folder / "gone"
    with pytest.raises(JoulefleetError, match="1 of 2 jobs failed") as caught:
        run_bench(files_of(bench, sections), root)
    (run,) = RunStore(root).list()
    assert run.state == "failed"
    assert f"--resume {run.path}" in caught.value.hint
    (built,) = (run.path / "profiles").iterdir()  # of the device that was there
    assert built.name.startswith("alpha")
    assert str(built) in caught.value.hint
    assert sum("beta" in name for name in failed_attempts(run.path)) == 4
    assert overview(run.path).counts() == {"finished": 1, "failed": 1}
    (kept,) = (run.path / "jobs").iterdir()
    before = tree_of(kept)
    bench.inventory.write_text(good)
    with pytest.raises(ConfigError, match="another configuration"):
        run_bench(files_of(bench, sections, seed=9), root, resume=run.path)
    done = run_bench(files_of(bench, sections), root, resume=run.path)
    assert tree_of(kept) == before  # finished jobs are not repeated, nor touched
    assert len(done.outcomes.finished) == 2
    assert built in (run.path / "profiles").iterdir()
    assert len(list((run.path / "profiles").iterdir())) == 2
    beta = next(f for n, f in done.outcomes.finished.items() if "beta" in n)
    assert open_capture(beta).record.attempt >= 5
    assert RunStore(root).list()[0].state == "complete"
    assert (run.path / "config" / "devices-2.toml").read_text() == good


def test_a_part_of_a_plan_leaves_the_run_open(bench: LocalBench) -> None:
    files = files_of(bench, ONCE, LOADS, devices=["alpha"])
    done = run_bench(files, bench.folder / "part", only=["*-none_*"])
    assert (len(done.outcomes.finished), done.left, done.built) == (1, 1, Built())
    (run,) = RunStore(bench.folder / "part").list()
    assert run.state == "interrupted"
    assert overview(run.path).counts() == {"finished": 1, "pending": 1}
    with pytest.raises(ConfigError, match="no job 'x'"):
        run_bench(files, bench.folder / "part", resume=run.path, only=["x"])


def test_profiles_that_cannot_be_stored_do_not_cost_the_run(bench: LocalBench) -> None:
    root = bench.folder / "blocked"
    watch = Watch()
    watch.on_finished = lambda _: (next(root.iterdir()) / "profiles").write_text("in the way")
    done = run_bench(files_of(bench, ONCE, devices=["alpha"]), root, view=watch)
    assert (len(done.outcomes.finished), done.left, done.built.profiles) == (1, 0, ())
    assert "profiles" in done.built.problems[0]
    assert RunStore(root).list()[0].state == "complete"


def test_repetitions_go_on_until_the_interval_is_narrow(bench: LocalBench) -> None:
    sections = {**FAST, "repetitions": "count = 2\nuntil_relative = 0.9\nmaximum = 3"}
    done = run_bench(files_of(bench, sections, devices=["alpha"]), bench.folder / "until")
    folders = [done.outcomes.finished[name] for name in sorted(done.outcomes.finished)]
    narrow = is_narrow(folders[:2], 0.9)  # as it happened on this machine
    assert (len(folders), len(done.outcomes.not_needed)) == ((2, 1) if narrow else (3, 0))
    assert done.left == 0
    assert overview(done.path).state == "complete"
    states = overview(done.path).counts()
    assert states == ({"finished": 2, "not_needed": 1} if narrow else {"finished": 3})


def start(bench: LocalBench, root: Path, *more: str) -> subprocess.Popen[str]:
    plan = bench.folder / "plan.toml"
    return subprocess.Popen(
        [sys.executable, "-m", "harness", "bench", "run", str(plan), "--inventory", str(bench.inventory),
         "--root", str(root), *more],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for_stage(root: Path, stage: str) -> Path:
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        for journal in root.glob("*/journal.jsonl"):
            if any(r.get("stage") == stage for r in read_journal(journal)):
                return journal.parent
        time.sleep(0.05)
    raise TimeoutError(stage)


def test_ctrl_c_ends_running_jobs_and_says_how_to_go_on(bench: LocalBench, ask: Callable[..., Any]) -> None:
    root = bench.folder / "stopped"
    bench.write_plan(ONCE, devices=["alpha"], samples=60_000, local_epochs=2000)
    process = start(bench, root)
    run = wait_for_stage(root, "round")
    assert ask("bench", "status", str(run))["counts"] == {"running": 1}
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    command = next(line for line in err.splitlines() if line.startswith("to go on: "))
    assert command.endswith(f"--resume {run}")
    assert RunStore(root).list()[0].state == "interrupted"
    (attempt,) = failed_attempts(run).values()
    assert (attempt.error_type, attempt.stage) == ("Stopped", "round")
    (kept,) = (run / "failed").iterdir()
    assert open_recording(kept).record.n_samples > 0
    assert (kept / "agent.log").exists()  # the device was told, and answered
    # Nothing is left running on the device.
    deadline_s = time.monotonic() + 10
    while len(process_tree(bench.servers["alpha"].process.pid)) > 1 and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert len(process_tree(bench.servers["alpha"].process.pid)) == 1
