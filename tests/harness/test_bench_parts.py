"""The parts of the runner one by one: queue, ending, metering, cooldown, telemetry, precision, evidence."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from device_agents.job import Job
from device_agents.protocol import EpochMarker, JobEnd, SourceLost, Sources, Telemetry
from device_agents.session.job_record import JobRecord
from device_agents.transport import LocalTransport
from harness.bench.job import metering as metering_module
from harness.bench.job.cooldown import ask_state, cool, rest
from harness.bench.job.failures import (
    AttemptRecord,
    attempts_before,
    ends_the_run,
    failed_record,
    put_aside,
    retryable,
)
from harness.bench.job.hooks import Ending, Stage, Stopped
from harness.bench.job.metering import Metering
from harness.bench.job.telemetry import read_heat
from harness.bench.job.verify import device_findings
from harness.bench.journal import BenchJournal, job_histories
from harness.bench.matrix import BenchJob, expand
from harness.bench.plan import Cooldown, Plan, Retry
from harness.bench_run.queue import JobQueue, relative_half_width
from harness.evidence.capture import salvage
from harness.inventory import Inventory, load_inventory
from harness.rounds.retry import RetryPolicy, Verdict, meter_resource
from joulefleet.config import parse_toml
from joulefleet.errors import (
    AgentDied,
    ConfigError,
    DataQualityError,
    DeviceError,
    DeviceUnreachable,
    MeterDisconnected,
    MeterError,
    MeterNotFound,
    MeterSilent,
    StorageFull,
    UnsafeOutput,
)
from joulefleet.records import read_record
from joulefleet.runstore import Journal, RunStatus, RunStore
from power.emulated.options import EmulatorOptions
from power.emulated.service import EmulatorProcess
from power.meter import MeterConfig
from power.model import SampleBlock
from power.recording import OPENING_FILE, open_recording
from tests.conftest import REPOSITORY
from tests.device_agents.fake_sysfs import phone, raspberry_pi, tree


@pytest.fixture
def inventory() -> Inventory:
    return load_inventory(REPOSITORY / "examples" / "devices.toml")


def jobs_of(inventory: Inventory, text: str) -> tuple[BenchJob, ...]:
    plan = parse_toml('models = ["softmax"]\nbackends = ["numpy"]\n' + text, Plan, name="plan")
    return expand(plan, inventory)


def queue_of(inventory: Inventory, text: str, parallel: int = 0, needed: bool = True) -> JobQueue:
    return JobQueue(jobs_of(inventory, text), inventory, parallel=parallel, is_needed=lambda _: needed)


def test_one_job_per_device_and_per_meter_at_a_time(inventory: Inventory) -> None:
    queue = queue_of(inventory, "devices = ['left', 'right', 'pi']\n[repetitions]\ncount = 2\n")
    first, second = queue.take(), queue.take()
    assert first is not None
    assert second is not None
    assert queue.take() is None  # one of left and right, and pi: nothing else is free
    assert {first.cell.device, second.cell.device} in ({"left", "pi"}, {"right", "pi"})
    queue.release(first)
    third = queue.take()
    assert third is not None
    assert third.cell.device != second.cell.device


def test_never_more_jobs_than_the_plan_allows(inventory: Inventory) -> None:
    queue = queue_of(inventory, "devices = ['phone', 'pi', 'far']\n", parallel=2)
    assert queue.take() is not None
    assert queue.take() is not None
    assert queue.take() is None


def test_a_retry_waits_while_others_go_on(inventory: Inventory) -> None:
    queue = queue_of(inventory, "devices = ['pi']\n[repetitions]\ncount = 2\n")
    first = queue.take()
    assert first is not None
    queue.release(first, again_in_s=0.2)
    second = queue.take()
    assert second is not None
    assert second.number == 2
    queue.release(second)
    assert queue.take() is None
    time.sleep(0.25)
    assert queue.take() == first
    assert not queue.is_empty
    queue.release(first)
    assert queue.is_empty


def test_a_resource_can_wait_or_be_out(inventory: Inventory) -> None:
    queue = queue_of(inventory, "devices = ['left', 'right', 'pi']\n[repetitions]\ncount = 1\n")
    queue.hold(meter_resource(inventory, "left"), 60)
    job = queue.take()
    assert job is not None
    assert job.cell.device == "pi"
    assert queue.take() is None  # right hangs on the same meter as left
    queue.release(job)
    assert {j.cell.device for j in queue.drop(meter_resource(inventory, "right"))} == {"left", "right"}
    assert queue.is_empty


def test_a_failure_before_measuring_is_the_devices(inventory: Inventory) -> None:
    first, second, *_ = jobs_of(inventory, "devices = ['pi']\n")
    policy = RetryPolicy(Retry(attempts=3, wait_s=2), inventory)
    gone = DeviceUnreachable("gone")
    assert policy.verdict(first, Stage.CONNECT, gone) == Verdict(again=True, wait_s=2, resource="device pi")
    assert policy.verdict(second, Stage.CONNECT, gone) == Verdict(again=True, wait_s=4, resource="device pi")
    policy.reached(first, Stage.IDLE_BEFORE)  # it is back
    assert policy.verdict(first, Stage.DEPLOY, gone) == Verdict(again=True, wait_s=2, resource="device pi")
    assert policy.verdict(second, Stage.CONNECT, gone).again
    assert policy.verdict(first, Stage.CONNECT, gone) == Verdict(again=False, resource="device pi", out=True)
    assert policy.verdict(second, Stage.DEPLOY, DeviceError("no python")).out


def test_a_failure_while_measuring_is_the_jobs(inventory: Inventory) -> None:
    first, second, *_ = jobs_of(inventory, "devices = ['pi']\n")
    policy = RetryPolicy(Retry(attempts=2, wait_s=2), inventory)
    gone = DeviceUnreachable("killed by the kernel: out of memory")
    assert policy.verdict(first, Stage.ROUND, gone) == Verdict(again=True, wait_s=2, resource="device pi")
    assert policy.verdict(first, Stage.ROUND, gone) == Verdict(again=False)
    assert policy.verdict(second, Stage.ROUND, gone).again
    assert policy.verdict(second, Stage.ROUND, RuntimeError("a bug")) == Verdict(again=False)
    assert not policy.verdict(first, Stage.VERIFY, DataQualityError("x")).again


def test_an_agent_that_dies_of_the_same_work_twice_is_not_tried_again(inventory: Inventory) -> None:
    """Unlike a link that is down, which may come back as often as a job has attempts."""
    first, second, *_ = jobs_of(inventory, "devices = ['pi']\n")
    policy = RetryPolicy(Retry(attempts=6, wait_s=2), inventory)
    died = AgentDied("killed by SIGSEGV")
    assert policy.verdict(first, Stage.ROUND, died).again
    assert policy.verdict(first, Stage.ROUND, DeviceUnreachable("gone")).again
    assert policy.verdict(first, Stage.ROUND, died) == Verdict(again=False)
    assert policy.verdict(second, Stage.ROUND, died) == Verdict(again=False)  # the same model and backend
    policy.reached(second, Stage.IDLE_AFTER)  # it has survived it
    assert policy.verdict(second, Stage.ROUND, died).again


def test_a_meter_that_was_there_may_come_back(inventory: Inventory) -> None:
    first, *_ = jobs_of(inventory, "devices = ['pi']\n")
    policy = RetryPolicy(Retry(attempts=3, wait_s=2), inventory)
    assert policy.verdict(first, Stage.METER, MeterNotFound("x")).out
    policy.reached(first, Stage.CONNECT)
    verdict = policy.verdict(first, Stage.METER, MeterNotFound("x"))
    assert verdict == Verdict(again=True, wait_s=2, resource=meter_resource(inventory, "pi"))


@pytest.mark.parametrize("needed", [True, False])
def test_an_optional_repetition_waits_for_the_earlier_ones(inventory: Inventory, needed: bool) -> None:
    text = "devices = ['pi']\n[repetitions]\ncount = 2\nuntil_relative = 0.1\nmaximum = 3\n"
    queue = queue_of(inventory, text, needed=needed)
    for _ in range(2):
        job = queue.take()
        assert job is not None
        assert not job.optional
        assert queue.take() is None
        queue.release(job)
    last = queue.take()
    assert (last is not None) is needed
    assert queue.is_empty is not needed


def test_the_first_reason_to_end_wins() -> None:
    ending = Ending()
    ending.sleep(0.0)
    first = Stopped("first")
    called = threading.Event()
    with ending.calling(called.set):
        ending.request(first)
        ending.request(Stopped("second"))
        assert called.wait(5)
    with pytest.raises(Stopped, match="first"):
        ending.sleep(60)
    with pytest.raises(Stopped, match="first"), ending.calling(lambda: None):
        pytest.fail("must not begin")


def meter_at(address: str) -> MeterConfig:
    return MeterConfig(
        kind="monsoon-lvpm", port=address, voltage_v=4.0, voltage_max_v=4.2, current_limit_a=3.0
    )


def test_a_current_above_the_ceiling_ends_the_recording(tmp_path: Path) -> None:
    failed = threading.Event()
    options = EmulatorOptions(signal="step:before=0.2,after=1.5,at=0.5")
    with EmulatorProcess("monsoon-lvpm", options) as instrument:
        metering = Metering(
            meter_at(instrument.address),
            tmp_path,
            current_max_a=1.0,
            on_failure=lambda _: failed.set(),
        )
        with pytest.raises(UnsafeOutput, match=r"above the ceiling of 1 A"), metering:
            assert failed.wait(20)
    assert any(f.code == "capture_failed" for f in open_recording(tmp_path).record.findings)


def test_a_meter_that_goes_away_is_told_at_once(tmp_path: Path) -> None:
    failed = threading.Event()
    with EmulatorProcess("monsoon-lvpm", EmulatorOptions()) as instrument:
        metering = Metering(meter_at(instrument.address), tmp_path, on_failure=lambda _: failed.set())
        with pytest.raises(MeterDisconnected), metering:
            instrument.kill()
            assert failed.wait(20)
    assert open_recording(tmp_path).record.n_samples > 0


def test_a_meter_that_falls_silent_is_told_and_may_be_tried_again(tmp_path: Path) -> None:
    failures: list[BaseException] = []
    failed = threading.Event()

    def note(error: BaseException) -> None:
        failures.append(error)
        failed.set()

    with EmulatorProcess("monsoon-lvpm", EmulatorOptions()) as instrument:
        metering = Metering(meter_at(instrument.address), tmp_path, on_failure=note)
        with pytest.raises(MeterSilent, match="no data for 3 s"), metering:
            os.kill(instrument.pid, signal.SIGSTOP)
            try:
                assert failed.wait(20)
            finally:
                os.kill(instrument.pid, signal.SIGCONT)
    assert retryable(failures[0])
    assert open_recording(tmp_path).record.n_samples > 0


def test_an_instrument_that_does_not_let_go_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    def stuck(*_: object, on_block: Callable[[SampleBlock], None], **__: object) -> None:
        column = np.zeros(1, np.float32)
        on_block(SampleBlock(np.array([1]), np.array([1]), column, column, 0, 0))
        assert released.wait(20)

    monkeypatch.setattr(metering_module, "record", stuck)
    monkeypatch.setattr(metering_module, "END_S", 0.05)
    with EmulatorProcess("monsoon-lvpm", EmulatorOptions()) as instrument:
        metering = Metering(meter_at(instrument.address), tmp_path)
        with pytest.raises(MeterSilent, match=r"did not end within 0\.05 s") as caught, metering:
            metering.stop()
        assert retryable(caught.value)
        released.set()
        metering._thread.join(20)


def test_a_meter_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MeterNotFound), Metering(meter_at(str(tmp_path / "none")), tmp_path / "r"):
        pytest.fail("there is no meter")


def test_the_state_of_a_device(tmp_path: Path) -> None:
    pi = ask_state(LocalTransport(), str(raspberry_pi(tmp_path / "pi")))
    assert pi.temperature_c == pytest.approx(61.832)
    assert pi.battery_level is None
    tree(tmp_path / "pi", {"proc/device-tree/model": "Raspberry Pi 4\0"})
    tree(tmp_path / "pi", {"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "ondemand"})
    facts = ask_state(LocalTransport(), str(tmp_path / "pi")).facts
    assert facts == {"product": "Raspberry Pi 4", "governor": "ondemand"}
    handset = ask_state(LocalTransport(), str(phone(tmp_path / "phone")))
    assert handset.temperature_c == pytest.approx(52.5)  # one of its sensors shows "n/a"
    assert handset.battery_level == pytest.approx(0.83)


def test_a_device_rests_until_it_is_cool(tmp_path: Path) -> None:
    root = raspberry_pi(tmp_path)
    seen: list[float] = []

    def on_temperature(now_c: float) -> None:
        seen.append(now_c)
        tree(root, {"sys/class/thermal/thermal_zone0/temp": 39_000})

    cooldown = Cooldown(temperature_c=40.0)
    cool(cooldown, LocalTransport(), Ending(), root=str(root), period_s=0.01, on_temperature=on_temperature)
    assert seen == [pytest.approx(61.832), pytest.approx(39.0)]


def test_a_device_that_stays_hot_fails_and_one_without_sensors_is_said_so(tmp_path: Path) -> None:
    root = raspberry_pi(tmp_path / "pi")
    cooldown = Cooldown(temperature_c=40.0, timeout_s=0.05)
    with pytest.raises(DeviceError, match=r"still 61\.8 degrees"):
        cool(cooldown, LocalTransport(), Ending(), root=str(root), period_s=0.02)
    with pytest.raises(ConfigError, match="shows no temperature"):
        cool(cooldown, LocalTransport(), Ending(), root=str(tree(tmp_path / "bare", {"x": 1})))


def test_rest_counts_from_the_end_of_the_job_before() -> None:
    began_s = time.monotonic()
    rest(Cooldown(seconds=3600), None, Ending())
    rest(Cooldown(seconds=3600), began_s - 3600, Ending())
    rest(Cooldown(seconds=0.2), began_s, Ending())
    assert time.monotonic() - began_s >= 0.2


def marker(epoch: int, edge: str, t_dev_ns: int) -> EpochMarker:
    return EpochMarker.model_validate(
        {"kind": "epoch", "edge": edge, "epoch": epoch, "t_dev_ns": t_dev_ns, "seq": 0}
    )


def telemetry(t_dev_ns: int, **values: list[float | None]) -> Telemetry:
    return Telemetry(t_dev_ns=t_dev_ns, values=values)


MARKERS = [marker(1, "start", 100), marker(1, "end", 200), marker(2, "start", 300), marker(2, "end", 400)]


@pytest.mark.parametrize(
    ("samples", "throttled"),
    [
        ([telemetry(150, cpu_cooling_state=[0.0]), telemetry(350, cpu_cooling_state=[2.0])], (1, 2)),
        ([telemetry(t, throttle_flags=[0x50000]) for t in (50, 150, 250, 350, 450)], ()),  # history only
        ([telemetry(t, throttle_flags=[4.0 if t == 350 else 0.0]) for t in (50, 150, 250, 350)], (2,)),
        ([telemetry(t, throttle_count=[3.0, 4.0 + (t > 280)]) for t in (50, 150, 250, 350, 450)], (2,)),
    ],
)
def test_throttled_epochs(samples: list[Telemetry], throttled: tuple[int, ...]) -> None:
    heat = read_heat(samples, MARKERS)
    assert heat.throttled_epochs == throttled
    assert heat.throttling_known


@pytest.mark.parametrize(
    ("times_ns", "known"),
    [
        ((50, 150, 250, 350), True),  # the next one would have come after the end
        ((50, 100, 150), False),  # ended in the first epoch
        ((50, 100, 150, 200, 250, 300, 340), False),  # ended in the last one
        ((), False),
    ],
)
def test_throttling_is_unknown_where_telemetry_ended_early(times_ns: tuple[int, ...], known: bool) -> None:
    samples = [telemetry(t_ns, throttle_flags=[0.0]) for t_ns in times_ns]
    assert read_heat(samples, MARKERS).throttling_known is known
    gone = [telemetry(t_ns, throttle_flags=[None]) for t_ns in (350, 450)]  # it still answers, but not this
    assert read_heat([*samples, *gone], MARKERS).throttling_known is known


LIMITED = Job(workload="softmax", samples=1, epochs=1, seed=0, temperature_max_c=60, battery_min_level=0.2)


@pytest.mark.parametrize(
    ("columns", "lost", "found"),
    [
        (("temperature_c", "battery_level"), (), {}),
        (("temperature_c", "battery_level"), ("load_1min",), {}),
        (("temperature_c",), (), {"unwatched_battery_level": "shows no battery level"}),
        (
            ("temperature_c", "battery_level"),
            ("temperature_c",),
            {"unwatched_temperature_c": "temperature could not always be read: its limit of 60"},
        ),
    ],
)
def test_limits_that_were_not_watched_are_found(
    columns: tuple[str, ...], lost: tuple[str, ...], found: dict[str, str]
) -> None:
    sources = Sources(columns=dict.fromkeys(columns, ("one",)), missing={})
    record = JobRecord("done", (), (sources, *(SourceLost(column=name, t_dev_ns=1) for name in lost)), "")
    findings = {finding.code: finding.message for finding in device_findings(record, LIMITED)}
    assert findings.keys() == found.keys()
    assert all(text in findings[code] for code, text in found.items())


@pytest.mark.parametrize(
    ("suspended_ns", "said"),
    [(None, ""), (0, ""), (35, ""), (49_000_000, ""), (50_000_000, "0.05 s"), (90_000_000_000, "90 s")],
)
def test_a_sleep_is_found_where_it_is_more_than_two_readings_of_clocks(
    suspended_ns: int | None, said: str
) -> None:
    end = JobEnd.model_validate({**FINISHED, "suspended_ns": suspended_ns})
    record = JobRecord("done", (end,), (), "")
    findings = device_findings(record, Job(workload="softmax", samples=1, epochs=1, seed=0))
    assert [finding.code for finding in findings] == ["device_suspended"] * bool(said)
    assert all(f"slept for {said} during" in finding.message for finding in findings)


FINISHED = {
    "outcome": "finished", "code": "", "message": "", "epochs": 1, "loss": None, "uploaded": True,
    "result": None, "background": None, "cpu": {"epochs_s": 0.0, "agent_s": 0.0},
    "t_dev_ns": 0, "wall_step_ns": 0,
}  # fmt: skip


def test_heat_of_a_device_that_tells_little() -> None:
    assert read_heat([], MARKERS).temperature is None
    heat = read_heat([telemetry(1, temperature_c=[40.0, 50.0]), telemetry(2, temperature_c=[45.0, None])], [])
    assert heat.temperature is not None
    assert heat.temperature.model_dump() == {"first_c": 50.0, "last_c": 45.0, "max_c": 50.0}
    assert not heat.throttling_known


def test_the_half_width_is_students() -> None:
    # By hand: mean 10, sd 1, n 3, t(0.975, 2) = 4.302653.
    assert relative_half_width([9.0, 10.0, 11.0]) == pytest.approx(4.302653 / 3**0.5 / 10, rel=1e-6)
    assert relative_half_width([3.0]) == float("inf")
    assert relative_half_width([2.0, 2.0]) == 0.0


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (DeviceUnreachable("x"), True),
        (MeterDisconnected("x"), True),
        (MeterSilent("no data for 3 s while sampling"), True),
        (MeterError("USB passthrough is not off"), False),
        (MeterNotFound("x"), False),
        (DataQualityError("x"), True),
        (DeviceError("x"), False),
        (UnsafeOutput("x"), False),
        (ConfigError("x"), False),
        (RuntimeError("a bug"), False),
    ],
)
def test_what_is_tried_again(error: Exception, again: bool) -> None:
    assert retryable(error) is again
    assert not ends_the_run(error)


def test_a_full_disk_ends_the_run() -> None:
    assert ends_the_run(StorageFull("x"))


def test_evidence_is_kept_and_counted(tmp_path: Path) -> None:
    assert attempts_before(tmp_path, "0001_a_b_rep1") == 0
    for number in (1, 2):
        folder = tmp_path / "jobs" / "0001_a_b_rep1"
        folder.mkdir(parents=True)
        (folder / "markers.jsonl").write_text("{}\n")
        error = DeviceUnreachable("gone", hint="look")
        place = put_aside(tmp_path, folder, failed_record("0001_a_b_rep1", number, "round", error))
        assert sorted(p.name for p in place.iterdir()) == ["attempt.json", "markers.jsonl"]
        assert not folder.exists()
    assert attempts_before(tmp_path, "0001_a_b_rep1") == 2
    assert attempts_before(tmp_path, "0001_a_b_rep11") == 0


def test_a_recording_that_cannot_be_made_whole_is_put_aside_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "0001_a_b_rep1"
    folder.mkdir(parents=True)
    (folder / OPENING_FILE).write_text("{}")
    error = DeviceUnreachable("gone")
    place = put_aside(tmp_path, folder, failed_record("0001_a_b_rep1", 1, "round", error))
    assert not folder.exists()
    record = read_record(place / "attempt.json", AttemptRecord)
    assert record.message == "gone"
    assert "opening.json" in record.recording_problem


def test_a_run_with_a_damaged_recording_is_salvaged(tmp_path: Path) -> None:
    run = RunStore(tmp_path).create("x", kind="bench", config={}, fingerprint="f")
    for name, text in (("damaged", "{}"), ("other", '{"')):
        (run.path / "jobs" / name).mkdir(parents=True)
        (run.path / "jobs" / name / OPENING_FILE).write_text(text)
    run._lock.close()  # killed
    report = salvage(run.path)
    assert report.status is RunStatus.SALVAGED
    assert report.problems.keys() == {"jobs/damaged", "jobs/other"}
    assert "info: missing" in report.problems["jobs/damaged"]


def test_the_journal_tells_where_each_job_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = BenchJournal(Journal(path))
    journal.write("session", jobs=3)
    journal.write("stage", job="a", attempt=1, stage="round")
    journal.write("attempt_failed", job="a", attempt=1, stage="round", error="gone", again_in_s=1.0)
    journal.write("stage", job="b", attempt=1, stage="meter")
    journal.write("finished", job="b", attempt=1)
    journal.write("stage", job="a", attempt=2, stage="connect")
    journal.close()
    with path.open("a") as file:
        file.write('{"event":"fini')  # killed in the middle of a line
    jobs = job_histories(path)
    assert (jobs["a"].state, jobs["a"].stage, jobs["a"].attempt) == ("running", "connect", 2)
    assert jobs["a"].error == "gone"
    assert jobs["b"].state == "finished"
    assert job_histories(tmp_path / "none") == {}


def test_a_run_does_not_begin_with_the_calibration_of_another_meter(tmp_path: Path) -> None:
    from harness.bench.live_check import require_ready_meters
    from harness.bench.plan import Plan
    from harness.inventory import Inventory
    from tests.power.synthetic import block, write_recording

    write_recording(tmp_path, [block([0.5] * 100)], serial="7")
    calibration = {"k": 2, "serial": "7", "current": {"all": {"gain": 1.0, "gain_uncertainty": 0.01}}}
    meter = {
        "kind": "replay",
        "port": str(tmp_path),
        "voltage_v": 4,
        "voltage_max_v": 4.2,
        "current_limit_a": 3,
    }
    plan = Plan.model_validate({"models": ["mnist-lenet5"], "backends": ["onnxruntime"]})

    def inventory(**stated: str) -> Inventory:
        of_meter = {**meter, "calibration": {**calibration, **stated}}
        return Inventory.model_validate({"devices": {"board": {"transport": "local", "meter": of_meter}}})

    require_ready_meters(plan, inventory())
    with pytest.raises(ConfigError, match=r"board: .*of serial '8'"):
        require_ready_meters(plan, inventory(serial="8"))
