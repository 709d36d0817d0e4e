"""A real agent in a process of its own."""

import os
import signal
import sys
import time

import pytest

from device_agents.protocol import Job, Phase, ProbeDone
from device_agents.session import AgentSession
from device_agents.transport import LocalTransport
from device_agents.transport.local import LocalChannel
from fedjoule.errors import DeviceError, DeviceUnreachable


def agent() -> LocalChannel:
    return LocalTransport().open([sys.executable, "-m", "device_agents.payload.agent"])


JOB = Job(workload="softmax", samples=2000, epochs=3, seed=1)


def test_continue_runs_all_epochs_and_the_probe_is_the_first() -> None:
    seen: list[ProbeDone] = []

    def decide(probe: ProbeDone) -> bool:
        seen.append(probe)
        return True

    with agent() as channel:
        session = AgentSession(channel)
        result = session.run_round(JOB, decide)
    assert result.done.epochs == 3
    assert seen == [result.probe]
    edges = [(m.kind, m.edge, m.epoch) for m in result.markers]
    assert edges == [
        (Phase.EPOCH, "start", 1),
        (Phase.EPOCH, "end", 1),
        (Phase.WAIT, "start", 0),
        (Phase.WAIT, "end", 0),
        (Phase.EPOCH, "start", 2),
        (Phase.EPOCH, "end", 2),
        (Phase.EPOCH, "start", 3),
        (Phase.EPOCH, "end", 3),
    ]
    times = [m.t_dev_ns for m in result.markers]
    assert times == sorted(times)
    assert result.probe.duration_ns == times[1] - times[0]


def test_stop_ends_after_the_probe() -> None:
    with agent() as channel:
        result = AgentSession(channel).run_round(JOB, lambda _: False)
    assert result.done.epochs == 1
    assert [m.epoch for m in result.markers if m.kind is Phase.EPOCH] == [1, 1]


def test_pings_bracket_the_device_clock() -> None:
    with agent() as channel:
        pings = AgentSession(channel).ping(5)
    # Same machine, same clock: the device's reading must lie between sending and receiving.
    assert all(p.sent_ns <= p.t_dev_ns <= p.received_ns for p in pings)


def test_a_killed_agent_keeps_the_markers_that_arrived() -> None:
    channel = agent()
    session = AgentSession(channel)

    def kill(_: ProbeDone) -> bool:
        os.kill(session.hello.pid, signal.SIGKILL)
        time.sleep(0.1)
        return True

    with channel, pytest.raises(DeviceUnreachable, match="ended unexpectedly"):
        session.run_round(JOB, kill)
    assert [m.epoch for m in session.markers[:2]] == [1, 1]


def test_a_silent_agent_hits_the_deadline() -> None:
    with agent() as channel:
        session = AgentSession(channel, timeout_s=0.3)
        os.kill(session.hello.pid, signal.SIGSTOP)
        try:
            with pytest.raises(DeviceUnreachable, match="silent"):
                session.ping(1)
        finally:
            os.kill(session.hello.pid, signal.SIGCONT)


def test_an_agent_that_fails_says_why() -> None:
    with agent() as channel:
        session = AgentSession(channel)
        bad = JOB.model_copy(update={"workload": "unheard-of"})
        with pytest.raises(DeviceError, match="unknown workload 'unheard-of'"):
            session.run_round(bad, lambda _: True)


def test_the_agent_ends_when_the_host_goes_away() -> None:
    channel = agent()
    AgentSession(channel)
    channel._stdin.close()
    assert channel._process.wait(timeout=5) == 0
    channel.close()
