"""What a bench asks of a job beyond the round itself: the load alone, warm-up, batch size, limits."""

import threading
import time
from pathlib import Path

import pytest

from device_agents.job import BackgroundLoad, SyncPattern
from device_agents.protocol import Phase
from device_agents.session.agent_session import AgentSession
from device_agents.transport import LocalTransport
from joulefleet.errors import DeviceError
from tests.device_agents.agents import AGENT, session_on, softmax
from tests.device_agents.fake_sysfs import THERMAL, phone, raspberry_pi, tree

LONG = {"samples": 100_000, "epochs": 10_000, "probe": False}


def test_the_load_runs_alone_before_the_training(tmp_path: Path) -> None:
    job = softmax(background=BackgroundLoad.constant(0.5), load_only_s=0.6)
    with session_on(tmp_path) as session:
        result = session.run_round(job)
    spans = {m.edge: m.t_dev_ns for m in result.markers if m.kind is Phase.LOAD}
    first_epoch_ns = next(m.t_dev_ns for m in result.markers if m.kind is Phase.EPOCH)
    assert spans["end"] - spans["start"] >= 0.6e9
    assert spans["end"] <= first_epoch_ns
    assert result.done.background is not None
    # Half a core asked for, over the phase and the training; at least a part of it was got.
    assert result.done.background.cpu_s > 0.1 * 0.6


def test_warm_up_epochs_are_a_phase_of_their_own(tmp_path: Path) -> None:
    with session_on(tmp_path) as session:
        result = session.run_round(softmax(warmup_epochs=2))
    kinds = [(m.kind.value, m.epoch) for m in result.markers if m.edge == "start"]
    assert kinds == [
        ("setup", 0), ("warmup", 1), ("warmup", 2), ("epoch", 1), ("wait", 0), ("epoch", 2), ("epoch", 3),
    ]  # fmt: skip
    assert result.done.epochs == 3


def test_the_batch_size_is_the_jobs(tmp_path: Path) -> None:
    """Larger batches are fewer steps, hence less progress from zero weights in one epoch."""
    with session_on(tmp_path) as session:
        usual = session.run_round(softmax(epochs=1, upload=True))
        large = session.run_round(softmax(epochs=1, batch_size=2000, upload=True))
    assert usual.model is not None
    assert large.model is not None
    assert abs(large.model["weights"]).max() < 0.5 * abs(usual.model["weights"]).max()


@pytest.mark.parametrize(
    ("device", "limit", "message"),
    [
        (raspberry_pi, {"temperature_max_c": 60}, r"61\.832 degrees Celsius, above 60"),
        (phone, {"battery_min_level": 0.99}, "battery at .*%, below 99%"),
    ],
)
def test_a_device_past_its_limit_ends_the_job(
    tmp_path: Path, device: object, limit: dict[str, float], message: str
) -> None:
    root = device(tmp_path / "root")  # type: ignore[operator]
    with session_on(tmp_path / "state", "--root", str(root)) as session:
        with pytest.raises(DeviceError, match=message):
            session.run_round(softmax(telemetry_hz=5, **LONG, **limit))
        assert session.run_round(softmax()).done.outcome == "finished"


def test_limits_hold_when_telemetry_can_no_longer_be_written(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk; the device grows hot when that is reached."""
    root, state, full_bytes = raspberry_pi(tmp_path / "root"), tmp_path / "state", 2400
    telemetry = state / "jobs" / "hot" / "telemetry.jsonl"

    def heat_up() -> None:
        lines = [b""]
        while sum(map(len, lines)) + len(lines[-1]) <= full_bytes:
            time.sleep(0.05)
            lines = [b"", *telemetry.read_bytes().splitlines(keepends=True)] if telemetry.exists() else lines
        tree(root, {f"{THERMAL}/thermal_zone0/temp": 95_000})

    limited = ["prlimit", f"--fsize={full_bytes}", "--", *AGENT, "--state", str(state), "--root", str(root)]
    quiet_time = SyncPattern(order=3, bit_ns=10**10)
    job = softmax(telemetry_hz=5, temperature_max_c=80, sync=quiet_time, deadline_s=40)
    with LocalTransport().open(limited) as channel:
        session = AgentSession(channel)
        threading.Thread(target=heat_up, daemon=True).start()
        with pytest.raises(DeviceError, match="95 degrees Celsius, above 80"):
            session.run_round(job, job_id="hot")
        end = session.collect("hot").end
    assert end is not None
    assert end.outcome == "limit"
    assert ["telemetry.jsonl cannot be written" in problem for problem in end.problems] == [True]


def test_a_device_inside_its_limits_goes_on(tmp_path: Path) -> None:
    root = raspberry_pi(tmp_path / "root")
    with session_on(tmp_path / "state", "--root", str(root)) as session:
        job = softmax(telemetry_hz=5, temperature_max_c=62, battery_min_level=0.5)
        assert session.run_round(job).done.outcome == "finished"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"load_only_s": 1.0}, "no background load"),
        ({"temperature_max_c": 60, "telemetry_hz": 0}, "telemetry"),
    ],
)
def test_jobs_that_cannot_do_what_they_say(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        softmax(**wrong)
