"""What a job can ask for, on a real agent."""

import contextlib
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from device_agents.deploy.bundle import build_bundle
from device_agents.job import BackgroundLoad, BlobRef, SyncPattern
from device_agents.payload.tensors import pack_arrays, unpack_arrays
from device_agents.protocol import EpochMarker, Phase, Telemetry
from device_agents.session.agent_session import AgentSession
from device_agents.transport import LocalTransport
from device_agents.workloads.softmax import Softmax, synthetic_shard
from joulefleet.errors import DeviceError, DeviceFull
from tests.device_agents.agents import (
    AGENT,
    AGENT_PYTHON,
    ONE_THREAD,
    a_model,
    open_agent,
    session_on,
    softmax,
)
from tests.device_agents.fake_sysfs import raspberry_pi, sensors


def by_phase(markers: tuple[EpochMarker, ...], phase: Phase) -> list[EpochMarker]:
    return [m for m in markers if m.kind is phase]


def weights(model: dict[str, np.ndarray] | None) -> bytes:
    assert model is not None
    return model["weights"].tobytes()


def test_the_probe_is_epoch_one_of_the_training_bit_for_bit(tmp_path: Path) -> None:
    with session_on(tmp_path) as session:
        with_probe = session.run_round(softmax(upload=True))
        without = session.run_round(softmax(upload=True, probe=False))
    assert without.probe is None
    assert by_phase(without.markers, Phase.WAIT) == []
    assert weights(with_probe.model) == weights(without.model)
    assert with_probe.done.loss == without.done.loss
    rng = np.random.default_rng(1)
    model = Softmax()
    x, y = synthetic_shard(2000, model, rng)
    expected = model.initial()
    for _ in range(3):
        expected, _ = model.epoch(expected, x, y, rng)
    assert weights(with_probe.model) == expected.tobytes()


def test_download_and_upload_are_phases_with_their_bytes(tmp_path: Path) -> None:
    data = a_model(0.02)
    job = softmax(model=BlobRef.of(data), upload=True)
    with session_on(tmp_path) as session:
        result = session.run_round(job, blobs={"model": data})
        fetched = session.fetch_result(result.job_id)
    for phase in (Phase.DOWNLOAD, Phase.UPLOAD):
        start, end = by_phase(result.markers, phase)
        assert (start.edge, end.edge) == ("start", "end")
        assert start.extra["bytes"] == end.extra["bytes"] == len(data)
        assert start.t_dev_ns < end.t_dev_ns
    order = [m.kind for m in result.markers]
    assert order.index(Phase.DOWNLOAD) < order.index(Phase.EPOCH) < order.index(Phase.UPLOAD)
    assert result.done.uploaded
    assert result.done.result == BlobRef.of(fetched)
    assert unpack_arrays(fetched)["weights"].tobytes() == weights(result.model)


def test_the_downloaded_model_is_the_one_that_is_trained(tmp_path: Path) -> None:
    data = a_model(0.02)
    with session_on(tmp_path) as session:
        job = softmax(model=BlobRef.of(data), upload=True, epochs=1)
        trained = session.run_round(job, blobs={"model": data})
    rng = np.random.default_rng(1)
    model = Softmax()
    x, y = synthetic_shard(2000, model, rng)
    expected, _ = model.epoch(np.full(650, 0.02), x, y, rng)
    assert weights(trained.model) == expected.tobytes()


def test_an_early_exit_uploads_nothing(tmp_path: Path) -> None:
    with session_on(tmp_path) as session:
        result = session.run_round(softmax(upload=True), lambda _: False)
        assert result.model is None
        assert by_phase(result.markers, Phase.UPLOAD) == []
        with pytest.raises(DeviceError, match="left no result"):
            session.fetch_result(result.job_id)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (b"no tensors at all", "header"),
        (pack_arrays({"weights": np.zeros(3)}), "one array `weights`"),
        (pack_arrays({"other": np.zeros(650)}), "one array `weights`"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_by_the_device(
    tmp_path: Path, model: bytes, message: str
) -> None:
    with session_on(tmp_path) as session, pytest.raises(DeviceError, match=message):
        session.run_round(softmax(model=BlobRef.of(model)), blobs={"model": model})


def test_a_shard_is_sent_once_and_again_only_if_the_copy_is_damaged(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    shard = pack_arrays({"x": rng.random((500, 64)), "y": rng.integers(0, 10, 500)})
    job = softmax(samples=500, shard=BlobRef.of(shard), upload=True)
    sent: list[str] = []
    results = []
    with session_on(tmp_path) as session:
        send = session._link.send

        def spy(message: dict[str, object], block: bytes = b"") -> None:
            sent.append(str(message["type"]))
            send(message, block)

        session._link.send = spy  # type: ignore[method-assign]
        cached = tmp_path / "cache" / BlobRef.of(shard).sha256
        for damage in (False, False, True):
            if damage:
                cached.write_bytes(b"\0" + cached.read_bytes()[1:])
            results.append(session.run_round(job, blobs={"shard": shard}))
        assert sent.count("blob") == 2
        session.clear_cache()
        assert not cached.exists()
    assert len({weights(result.model) for result in results}) == 1
    assert results[0].done.loss != session_loss_on_synthetic(tmp_path)


def session_loss_on_synthetic(tmp_path: Path) -> float | None:
    with session_on(tmp_path) as session:
        return session.run_round(softmax(samples=500)).done.loss


def test_a_shard_of_another_size_is_refused(tmp_path: Path) -> None:
    shard = pack_arrays({"x": np.zeros((10, 64)), "y": np.zeros(10, np.int64)})
    with session_on(tmp_path) as session, pytest.raises(DeviceError, match="a shard of"):
        session.run_round(softmax(samples=500, shard=BlobRef.of(shard)), blobs={"shard": shard})


def test_sync_patterns_frame_the_work_and_carry_their_parameters(tmp_path: Path) -> None:
    pattern = SyncPattern(order=3, bit_ns=5_000_000)
    with session_on(tmp_path) as session:
        result = session.run_round(softmax(sync=pattern))
    before, before_end, after, after_end = by_phase(result.markers, Phase.SYNC)
    assert before.extra == {"when": "before", "order": 3, "bit_ns": 5_000_000, "cores": 1}
    assert after.extra["when"] == after_end.extra["when"] == "after"
    assert before_end.t_dev_ns - before.t_dev_ns >= 7 * 5_000_000
    assert result.markers[0] == before
    assert result.markers[-1] == after_end


def test_background_load_runs_beside_the_job_and_is_accounted_for(tmp_path: Path) -> None:
    with session_on(tmp_path) as session:
        result = session.run_round(softmax(background=BackgroundLoad.constant(0.5, cores=2)))
    report = result.done.background
    assert report is not None
    assert report.workers == 2
    assert 0 < report.cpu_s < report.wall_s


def test_everything_works_from_the_bundle(tmp_path: Path) -> None:
    """Also what starts a second interpreter: the background load."""
    (tmp_path / "agent.pyz").write_bytes(build_bundle().data)
    environment = {**ONE_THREAD, "JOULEFLEET_STATE": str(tmp_path / "state"), "PYTHONPATH": "/nonexistent"}
    command = ["env", "-C", str(tmp_path), AGENT_PYTHON, "agent.pyz"]
    with LocalTransport(environment).open(command) as channel:
        job = softmax(background=BackgroundLoad.constant(0.1), power_hz=10, telemetry_hz=5)
        result = AgentSession(channel).run_round(job)
    assert result.done.background is not None
    assert result.done.background.workers == 1
    assert (tmp_path / "state" / "jobs" / result.job_id / "journal.jsonl").exists()


PRINTING_AGENT = """
import os
from device_agents.workloads.softmax import Softmax
epoch = Softmax.epoch
def chatty(self, *arguments):
    print("a stray print")
    os.write(1, b"a native library\\n")
    return epoch(self, *arguments)
Softmax.epoch = chatty
from device_agents.payload.agent import main
main()
"""


def test_stray_prints_go_to_stderr_and_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = [AGENT_PYTHON, "-c", PRINTING_AGENT, "--state", str(tmp_path)]
    with LocalTransport().open(command) as channel:
        session = AgentSession(channel)
        result = session.run_round(softmax(epochs=2))
        log = session.collect(result.job_id).log
    shown = capfd.readouterr().err
    for text in ("a stray print\n", "a native library\n"):
        assert log.count(text) == shown.count(text) == 2


def test_a_crash_in_the_workload_is_a_failed_job_with_its_traceback_in_the_log(tmp_path: Path) -> None:
    program = PRINTING_AGENT.replace('print("a stray print")', "raise ZeroDivisionError('in the model')")
    with LocalTransport().open([AGENT_PYTHON, "-c", program, "--state", str(tmp_path)]) as channel:
        session = AgentSession(channel)
        with pytest.raises(DeviceError, match="ZeroDivisionError: in the model"):
            session.run_round(softmax(), job_id="broken")
        record = session.collect("broken")
    assert "Traceback" in record.log
    assert record.end is not None
    assert (record.end.outcome, record.end.code) == ("failed", "crashed")


STEPPED_CLOCK = """
import time
read = time.clock_gettime_ns
step_ns = 0
def stepped(clock):
    return read(clock) + (step_ns if clock == time.CLOCK_REALTIME else 0)
time.clock_gettime_ns = stepped
from device_agents.workloads.softmax import Softmax
epoch = Softmax.epoch
def stepping(self, *arguments):
    global step_ns
    step_ns = 3600 * 10**9
    return epoch(self, *arguments)
Softmax.epoch = stepping
from device_agents.payload.agent import main
main()
"""


def test_a_stepped_wall_clock_is_reported_and_does_no_harm(tmp_path: Path) -> None:
    """The device's wall clock jumps by an hour in the first epoch, as a time service does after boot."""
    with LocalTransport().open([AGENT_PYTHON, "-c", STEPPED_CLOCK, "--state", str(tmp_path)]) as channel:
        result = AgentSession(channel).run_round(softmax())
    assert abs(result.done.wall_step_ns - 3600 * 10**9) < 10**9
    assert result.done.suspended_ns is not None
    assert result.done.suspended_ns < 10**9
    times = [m.t_dev_ns for m in result.markers]
    assert times == sorted(times)
    assert times[-1] - times[0] < 60 * 10**9
    with session_on(tmp_path) as session:
        assert abs(session.run_round(softmax()).done.wall_step_ns) < 10**9


def test_a_missing_backend_is_said_plainly(tmp_path: Path) -> None:
    """-S leaves the site packages out: a device with nothing but Python."""
    command = [AGENT_PYTHON, "-S", *AGENT[1:], "--state", str(tmp_path)]
    with LocalTransport().open(command) as channel:
        session = AgentSession(channel)
        assert len(session.ping(2)) == 2
        with pytest.raises(DeviceError, match="backend numpy needs numpy") as caught:
            session.run_round(softmax(sync=SyncPattern(order=3, bit_ns=5_000_000)))
    assert "bench prepare" in caught.value.hint
    assert not caught.value.transient
    assert [f"{m.kind} {m.edge}" for m in session.markers[:3]] == ["sync start", "sync end", "setup start"]


def test_a_full_disk_ends_the_job_and_loses_no_marker(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: the kernel refuses the same write."""
    limited = ["prlimit", "--fsize=4096", "--", *AGENT, "--state", str(tmp_path)]
    with LocalTransport().open(limited) as channel:
        session = AgentSession(channel)
        with pytest.raises(DeviceFull, match="no space left on the device") as caught:
            session.run_round(softmax(epochs=1000, samples=100, telemetry_hz=0), job_id="full")
    assert caught.value.transient
    assert len(session.markers) > 10
    assert [m.seq for m in session.markers] == list(range(len(session.markers)))
    with session_on(tmp_path) as other:
        record = other.collect("full")
    assert record.state == "died"  # its end did not fit either
    # The marker that did not fit went over the link instead.
    assert record.markers == session.markers[:-1]


def test_a_disk_that_is_full_from_the_beginning(tmp_path: Path) -> None:
    """Not even the journal's first line fits."""
    limited = ["prlimit", "--fsize=20", "--", *AGENT, "--state", str(tmp_path)]
    with LocalTransport().open(limited) as channel:
        session = AgentSession(channel)
        with pytest.raises(DeviceFull, match="journal") as caught:
            session.run_round(softmax(), job_id="full")
        assert caught.value.transient
        assert len(session.ping(1)) == 1


def test_a_disk_that_fills_up_during_a_job(small_disk: Callable[[], Path]) -> None:
    """A real file system that somebody else fills; its journal grows by less than a page per marker."""
    state = small_disk()

    def fill(marker: EpochMarker) -> None:
        if (marker.epoch, marker.edge) == (2, "start"):
            with contextlib.suppress(OSError), (state / "hog").open("wb", buffering=0) as hog:
                while True:
                    hog.write(bytes(4096))

    with session_on(state, on_marker=fill) as session:
        job = softmax(epochs=10_000, samples=2000, telemetry_hz=0, quiet=False, probe=False)
        with pytest.raises(DeviceFull, match="journal") as caught:
            session.run_round(job, job_id="full")
        assert caught.value.transient
        (state / "hog").unlink()
        record = session.collect("full")
    assert record.state == "died"  # its end did not fit either
    assert len(record.markers) > 4
    assert record.markers == session.markers[:-1]  # the one that did not fit went over the link


def test_a_shard_that_does_not_fit_on_the_disk(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    shard = pack_arrays({"x": rng.random((500, 64)), "y": rng.integers(0, 10, 500)})
    limited = ["prlimit", "--fsize=100000", "--", *AGENT, "--state", str(tmp_path)]
    with LocalTransport().open(limited) as channel:
        session = AgentSession(channel)
        with pytest.raises(DeviceFull, match="no space left on the device"):
            session.run_round(softmax(samples=500, shard=BlobRef.of(shard)), blobs={"shard": shard})
        assert list((tmp_path / "cache").iterdir()) == []
        assert len(session.ping(1)) == 1  # what did not fit was read all the same: the link is in step
        assert session.run_round(softmax()).done.outcome == "finished"


def test_a_full_disk_ends_telemetry_before_the_job(tmp_path: Path) -> None:
    limited = ["prlimit", "--fsize=2400", "--", *AGENT, "--state", str(tmp_path)]
    long_enough = SyncPattern(order=3, bit_ns=250_000_000)
    with LocalTransport().open(limited) as channel:
        session = AgentSession(channel)
        result = session.run_round(softmax(epochs=1, probe=False, telemetry_hz=5, sync=long_enough))
        record = session.collect(result.job_id)
    assert result.done.outcome == "finished"
    assert ["telemetry.jsonl cannot be written" in problem for problem in result.done.problems] == [True]
    assert record.end is not None
    assert len(record.telemetry_of(Telemetry)) > 1


def test_the_folder_is_in_the_home_folder_and_not_in_tmp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Termux has no /tmp."""
    monkeypatch.delenv("JOULEFLEET_STATE", raising=False)
    nowhere = str(tmp_path / "nowhere")
    with LocalTransport({"HOME": str(tmp_path), "TMPDIR": nowhere}).open(AGENT) as channel:
        result = AgentSession(channel).run_round(softmax(epochs=1, background=BackgroundLoad.constant(0.1)))
    assert (tmp_path / ".joulefleet" / "jobs" / result.job_id).is_dir()
    assert not Path(nowhere).exists()


def test_a_folder_that_cannot_be_made_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with (
        open_agent(tmp_path / "file") as channel,
        pytest.raises(DeviceError, match=r"failed:.*file") as caught,
    ):
        AgentSession(channel)
    assert "writable" in caught.value.hint


def test_one_job_after_another_leaves_nothing_open(tmp_path: Path) -> None:
    """A campaign runs hundreds of jobs in one agent: descriptors, threads and children must not pile up."""
    job = softmax(
        epochs=1, probe=False, power_hz=20, quiet=False, background=BackgroundLoad.constant(0.1), upload=True
    )
    with session_on(tmp_path, "--root", str(sensors(raspberry_pi(tmp_path / "root")))) as session:
        process = Path(f"/proc/{session.hello.pid}")
        session.run_round(job)
        open_files = []
        for _ in range(3):
            session.collect(session.run_round(job).job_id)  # answered when the job is put away
            open_files.append(len(list((process / "fd").iterdir())))
            assert len(list((process / "task").iterdir())) == 2  # the main thread and the reader
        assert len(set(open_files)) == 1


def test_a_job_that_cannot_open_its_telemetry_leaves_nothing_open(small_disk: Callable[[], Path]) -> None:
    """A disk without room for one more file: two locks, folder, log and journal can be made, and no more."""
    state = small_disk()
    subprocess.run(["mount", "-o", "remount,nr_inodes=60", str(state)], check=True)
    (state / "jobs").mkdir()
    with session_on(state) as session:
        hogs = []
        with contextlib.suppress(OSError):
            while True:
                hogs.append(state / f"hog{len(hogs)}")
                hogs[-1].touch()
        for hog in hogs[:5]:
            hog.unlink()
        descriptors = Path(f"/proc/{session.hello.pid}/fd")
        before = sorted(descriptors.iterdir())
        for _ in range(3):
            with pytest.raises(DeviceFull, match="no space left on the device"):
                session.run_round(softmax(), job_id="full")
            assert (state / "jobs" / "full" / "journal.jsonl").exists()
            assert not (state / "jobs" / "full" / "telemetry.jsonl").exists()
            session.forget("full")
            assert sorted(descriptors.iterdir()) == before


def test_the_agents_own_time_is_accounted_for(tmp_path: Path) -> None:
    with session_on(tmp_path) as session:
        done = session.run_round(softmax(samples=50_000, telemetry_hz=5)).done
    assert 0 < done.cpu.agent_s < done.cpu.epochs_s


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs is 0"),
        ({"backend": "cuda"}, "backend is 'cuda'"),
        ({"deadline_s": float(10**9)}, "deadline_s"),
        ({"quiet": 1}, "quiet is 1"),
        ({"sync": {"order": 40, "bit_ns": 10**7, "cores": 1}}, "order 3 to 10"),
        ({"sync": {}}, "sync"),
        ({"shard": {"sha256": "../../x", "size": 1}}, "sha256 is needed"),
        ({"background": {"kind": "gpu", "cores": 1, "steps": [], "buffer_bytes": 1}}, "kind cpu or memory"),
        ({"party": 1}, "unknown entries: party"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused_by_the_device(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    from device_agents.protocol import Accepted

    with session_on(tmp_path) as session:
        wire = {**softmax().model_dump(mode="json"), **changes}
        session._link.send({"type": "job", "job_id": "odd", **wire})
        with pytest.raises(DeviceError, match=message):
            session._link.expect(Accepted)
        assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"what?\n", "not JSON"),
        (b"[1]\n", "not a message"),
        (b'{"type":"ping","seq":9}\n', "message 9 arrived where 1 was due"),
        (b'{"type":"dance","seq":1}\n', "unknown command 'dance'"),
        (b'{"type":"collect","seq":1,"job_id":"j"}\n', "no job 'j'"),
        (b'{"type":"attach","seq":1,"job_id":"../j"}\n', "is not a job id"),
        (b"x" * 70_000 + b"\n", "a line longer than"),
        (b'{"type":"blob","seq":1,"size":-1}\n', "a blob of -1 bytes"),
    ],
)
def test_nonsense_from_the_host_is_answered_not_obeyed(tmp_path: Path, line: bytes, message: str) -> None:
    from device_agents.protocol import Pong

    with open_agent(tmp_path) as channel:
        session = AgentSession(channel)
        channel.send(line)
        with pytest.raises(DeviceError, match=message):
            session._link.expect(Pong)
