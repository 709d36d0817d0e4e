"""Termux's wake lock, with commands of our own in the place of Termux's."""

import os
import signal
import time
from pathlib import Path

import pytest

from device_agents.session.agent_session import AgentSession
from tests.device_agents.agents import cut, kill, open_agent, softmax, wait_for_exit


@pytest.fixture
def termux(tmp_path: Path) -> dict[str, str]:
    """A PATH with commands that write down when they were called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("termux-wake-lock", "termux-wake-unlock"):
        command = folder / name
        command.write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/calls\n")
        command.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def calls(tmp_path: Path, count: int) -> list[str]:
    """What was called, once so many calls have been made or a while has passed."""
    file = tmp_path / "calls"
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = file.read_text().splitlines() if file.exists() else []
        if len(found) >= count:
            return found
        time.sleep(0.02)
    return file.read_text().splitlines() if file.exists() else []


BOTH = ["termux-wake-lock", "termux-wake-unlock"]


def test_it_is_taken_for_the_agents_life_and_released(tmp_path: Path, termux: dict[str, str]) -> None:
    with open_agent(tmp_path / "state", environment=termux) as channel:
        session = AgentSession(channel)
        session.run_round(softmax())
        assert calls(tmp_path, 1) == BOTH[:1]
    assert calls(tmp_path, 2) == BOTH


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_it_is_released_however_the_agent_ends(
    tmp_path: Path, termux: dict[str, str], number: signal.Signals
) -> None:
    with open_agent(tmp_path / "state", environment=termux) as channel:
        AgentSession(channel)
        assert calls(tmp_path, 1) == BOTH[:1]
        os.kill(channel.pid, number)
        assert wait_for_exit(channel) != 0
    assert calls(tmp_path, 2) == BOTH


def test_it_is_kept_while_a_job_finishes_without_its_host(tmp_path: Path, termux: dict[str, str]) -> None:
    channel = open_agent(tmp_path / "state", environment=termux)
    session = AgentSession(channel)
    job = softmax(samples=100_000, epochs=10_000, probe=False, on_disconnect="finish")
    session._link.send({"type": "job", "job_id": "long", **job.model_dump(mode="json")})
    session._link.next()
    cut(channel)
    time.sleep(0.3)
    assert calls(tmp_path, 1) == BOTH[:1]
    kill(channel)
    assert calls(tmp_path, 2) == BOTH


def test_a_phone_that_refuses_is_no_reason_to_stop(tmp_path: Path, termux: dict[str, str]) -> None:
    (tmp_path / "bin" / "termux-wake-lock").write_text("#!/bin/sh\nexit 1\n")
    with open_agent(tmp_path / "state", environment=termux) as channel:
        assert AgentSession(channel).run_round(softmax()).done.outcome == "finished"
    assert calls(tmp_path, 1) == ["termux-wake-unlock"]
