"""A real agent in a process of its own."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from device_agents.job import Job
from device_agents.protocol import Accepted, Done, EpochMarker, Phase, ProbeDone
from device_agents.session.agent_session import AgentSession
from joulefleet.errors import ConfigError, DeviceError, DeviceUnreachable
from tests.device_agents.agents import kill, open_agent, session_on, softmax, wait_for_exit

LONG = {"samples": 100_000, "epochs": 10_000, "probe": False}
"""Many minutes of work in epochs of a tenth of a second: something always ends it first."""


def edges(markers: tuple[EpochMarker, ...]) -> list[str]:
    return [f"{m.kind} {m.epoch} {m.edge}" for m in markers]


@pytest.mark.parametrize("quiet", [True, False])
def test_continue_runs_all_epochs_and_the_probe_is_the_first(tmp_path: Path, quiet: bool) -> None:
    seen: list[ProbeDone] = []
    arrived: list[EpochMarker] = []

    def decide(probe: ProbeDone) -> bool:
        assert (arrived == []) is quiet  # a quiet agent has sent none of its markers so far
        seen.append(probe)
        return True

    with session_on(tmp_path, on_marker=arrived.append) as session:
        result = session.run_round(softmax(quiet=quiet), decide)
    assert result.done.outcome == "finished"
    assert result.done.epochs == 3
    assert seen == [result.probe]
    assert edges(result.markers) == [
        "setup 0 start",
        "setup 0 end",
        "epoch 1 start",
        "epoch 1 end",
        "wait 0 start",
        "wait 0 end",
        "epoch 2 start",
        "epoch 2 end",
        "epoch 3 start",
        "epoch 3 end",
    ]
    assert tuple(arrived) == result.markers == session.markers
    times = [m.t_dev_ns for m in result.markers]
    assert times == sorted(times)
    assert result.probe is not None
    assert result.probe.duration_ns == times[3] - times[2]
    assert result.probe.samples == 2000


def test_stop_ends_after_the_probe(tmp_path: Path) -> None:
    with session_on(tmp_path) as session:
        result = session.run_round(softmax(), lambda _: False)
    assert (result.done.outcome, result.done.epochs) == ("stopped", 1)
    assert [m.epoch for m in result.markers if m.kind is Phase.EPOCH] == [1, 1]


def test_one_agent_runs_one_round_after_another(tmp_path: Path) -> None:
    with session_on(tmp_path) as session:
        first = session.run_round(softmax())
        second = session.run_round(softmax(epochs=1))
    assert first.job_id != second.job_id
    assert [m.seq for m in second.markers] == list(range(6))
    assert session.markers == first.markers + second.markers


def test_pings_bracket_the_device_clock(tmp_path: Path) -> None:
    with session_on(tmp_path) as session:
        pings = session.ping(5)
    # Same machine, same clock: the device's reading must lie between sending and receiving.
    assert all(p.sent_ns <= p.t_dev_ns <= p.received_ns for p in pings)


def test_hello_carries_boot_id_and_all_clocks(tmp_path: Path) -> None:
    before_ns, wall_ns = time.monotonic_ns(), time.time_ns()
    with session_on(tmp_path) as session:
        hello = session.hello
    assert hello.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert before_ns <= hello.clock.monotonic_ns <= time.monotonic_ns()
    assert wall_ns <= hello.clock.realtime_ns <= time.time_ns()
    assert hello.clock.boottime_ns is not None


def test_a_killed_agent_is_unreachable(tmp_path: Path) -> None:
    channel = open_agent(tmp_path)
    session = AgentSession(channel)

    def decide(_: ProbeDone) -> bool:
        kill(channel)
        return True

    with channel, pytest.raises(DeviceUnreachable, match="ended unexpectedly"):
        session.run_round(softmax(quiet=False), decide)
    assert [m.epoch for m in session.markers if m.kind is Phase.EPOCH] == [1, 1]


def test_a_silent_agent_hits_the_deadline(tmp_path: Path) -> None:
    with session_on(tmp_path) as session:
        os.kill(session.hello.pid, signal.SIGSTOP)
        os.waitpid(session.hello.pid, os.WUNTRACED)  # until it has stopped
        session._link.timeout_s = 0.3
        try:
            with pytest.raises(DeviceUnreachable, match="silent"):
                session.ping(1)
        finally:
            os.kill(session.hello.pid, signal.SIGCONT)


def test_an_agent_that_fails_says_why_and_serves_on(tmp_path: Path) -> None:
    with session_on(tmp_path) as session:
        with pytest.raises(DeviceError, match="unknown workload 'unheard-of'"):
            session.run_round(softmax(workload="unheard-of"))
        assert edges(session.markers) == ["setup 0 start"]
        assert session.run_round(softmax()).done.outcome == "finished"


def test_the_agent_ends_when_the_host_goes_away(tmp_path: Path) -> None:
    channel = open_agent(tmp_path)
    AgentSession(channel)
    channel._stdin.close()
    assert wait_for_exit(channel) == 0
    channel.close()


def test_cancel_ends_a_job_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    second_epoch = threading.Event()

    def on_marker(marker: EpochMarker) -> None:
        if marker.epoch == 2:
            second_epoch.set()

    with session_on(tmp_path, on_marker=on_marker) as session:

        def cancel() -> None:  # from another thread, as a user's Ctrl-C would come
            second_epoch.wait()
            session.cancel("doomed")

        threading.Thread(target=cancel).start()
        with pytest.raises(DeviceError, match="cancelled"):
            session.run_round(softmax(quiet=False, **LONG), job_id="doomed")
        assert session.markers[-1].edge == "start"
        end = session.collect("doomed").end
        assert end is not None
        assert end.outcome == "cancelled"
        assert 1 <= end.epochs < 100
        assert session.run_round(softmax()).done.outcome == "finished"


def test_cancelling_a_job_that_is_over_does_no_harm(tmp_path: Path) -> None:
    with session_on(tmp_path) as session:
        session.run_round(softmax(), job_id="over")
        session.cancel("never-heard-of")
        session.cancel("over")
        assert len(session.ping(2)) == 2
        assert session.run_round(softmax()).done.outcome == "finished"
        session.forget("over")
        assert session.run_round(softmax(), job_id="over").done.outcome == "finished"


def test_cancelling_a_job_that_has_not_begun(tmp_path: Path) -> None:
    """Both lie in the agent's input before it looks at either."""
    with session_on(tmp_path) as session:
        os.kill(session.hello.pid, signal.SIGSTOP)
        session._link.send({"type": "job", "job_id": "early", **_wire(softmax(**LONG))})
        session.cancel("early")
        os.kill(session.hello.pid, signal.SIGCONT)
        assert session._link.expect(Accepted).job_id == "early"
        done = session._link.expect(Done)
        assert (done.outcome, done.epochs) == ("cancelled", 0)


def test_an_agent_that_takes_nothing_hits_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("device_agents.transport.local.SEND_TIMEOUT_S", 0.2)
    with open_agent(tmp_path) as channel:
        AgentSession(channel)
        os.kill(channel.pid, signal.SIGSTOP)
        try:
            with pytest.raises(DeviceUnreachable, match=r"of 10000000 bytes untaken") as caught:
                channel.send(bytes(10_000_000))
        finally:
            os.kill(channel.pid, signal.SIGCONT)
    assert caught.value.transient


def test_late_answers_are_dropped(tmp_path: Path) -> None:
    with session_on(tmp_path) as session:

        def decide(_: ProbeDone) -> bool:
            session._link.send({"type": "decide", "job_id": "another", "action": "stop"})
            session._link.send({"type": "blob", "job_id": "another", "name": "model", "size": 3}, b"abc")
            return True

        assert session.run_round(softmax(), decide).done.outcome == "finished"


def test_the_deadline_is_kept_by_the_device(tmp_path: Path) -> None:
    with session_on(tmp_path) as session:
        with pytest.raises(DeviceError, match="deadline"):
            session.run_round(softmax(deadline_s=1.5, **LONG))
        assert session.markers[-1].edge == "start"


def test_a_host_that_does_not_decide_counts_as_gone(tmp_path: Path) -> None:
    def decide(_: ProbeDone) -> bool:
        time.sleep(1.0)
        return True

    with session_on(tmp_path) as session:
        with pytest.raises(DeviceUnreachable, match=r"no decide from the host for 0\.2 s"):
            session.run_round(softmax(decision_timeout_s=0.2), decide)
        result = session.run_round(softmax(decision_timeout_s=0.2, on_disconnect="finish"), decide)
        assert result.done.outcome == "finished"
        decision = session.collect(result.job_id).decision
        assert decision is not None
        assert (decision.go_on, decision.by) == (True, "policy")


def test_a_non_quiet_job_shows_what_happens_as_it_happens(tmp_path: Path) -> None:
    live = []
    with session_on(tmp_path, on_live=live.append) as session:
        session.run_round(softmax(quiet=False, telemetry_hz=5))
    kinds = [message.type for message in live]
    assert kinds[0] in ("sources", "heartbeat")
    assert {"sources", "telemetry", "heartbeat", "marker"} <= set(kinds)


def test_blobs_must_be_those_that_the_job_names(tmp_path: Path) -> None:
    with (
        session_on(tmp_path) as session,
        pytest.raises(ConfigError, match="either named by the job or given"),
    ):
        session.run_round(softmax(), blobs={"model": b"x"})


def test_a_job_cannot_take_the_name_of_another(tmp_path: Path) -> None:
    with session_on(tmp_path) as session:
        session.run_round(softmax(), job_id="twice")
        with pytest.raises(DeviceError, match="already a job 'twice'"):
            session.run_round(softmax(), job_id="twice")
        session.forget("twice")
        assert session.run_round(softmax(), job_id="twice").done.outcome == "finished"
        with pytest.raises(DeviceError, match="no job 'never'"):
            session.collect("never")


@pytest.mark.parametrize("job_id", ["../../etc", "a/b", "", ".", "x" * 65])
def test_a_job_id_is_never_a_path(tmp_path: Path, job_id: str) -> None:
    with session_on(tmp_path / "state") as session, pytest.raises(DeviceError, match="is not a job id"):
        session._link.send({"type": "job", **_wire(softmax()), "job_id": job_id})
        session._link.expect(ProbeDone)
    assert sorted(p.name for p in (tmp_path / "state").iterdir()) == ["agent.log", "cache"]


def _wire(job: Job) -> dict[str, object]:
    return job.model_dump(mode="json")
