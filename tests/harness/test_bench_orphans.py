"""Jobs that outlived the link they were started over."""

import threading
from pathlib import Path

import pytest

from device_agents.session import AgentSession
from fedjoule.errors import FedjouleError
from harness.bench.orphans import device_job_id, settle_orphans
from tests.device_agents.agents import cut, open_agent, session_on, softmax

# Meters are recorded in real time: such tests run one after the other, not against each other.
pytestmark = pytest.mark.xdist_group("bench")


def test_a_job_that_still_runs_is_ended_and_fetched(tmp_path: Path) -> None:
    state, run = tmp_path / "state", tmp_path / "run"
    left = run / "failed" / "0007_pi_softmax-numpy-none_rep1-attempt2"
    never_begun = run / "failed" / "0008_pi_softmax-numpy-none_rep1-attempt1"
    elsewhere = run / "failed" / "0009_phone_softmax-numpy-none_rep1-attempt1"
    for folder in (left, never_begun, elsewhere):
        folder.mkdir(parents=True)
    job_id = device_job_id("abcd1234", 7, 2)
    channel = open_agent(state)
    began = threading.Event()

    def run_round() -> None:
        # Not quiet, so that its beginning shows; it would go on for minutes without a host.
        job = softmax(samples=100_000, epochs=10_000, probe=False, quiet=False, on_disconnect="finish")
        try:
            AgentSession(channel, on_marker=lambda _: began.set()).run_round(job, job_id=job_id)
        except (FedjouleError, ValueError, OSError):
            return

    thread = threading.Thread(target=run_round)
    thread.start()
    assert began.wait(30)
    cut(channel)
    settled: set[str] = set()
    with session_on(state) as session:
        settle_orphans(session, run, "abcd1234", "pi", settled)
        assert not (state / "jobs" / job_id).exists()
    thread.join()
    assert settled == {job_id, device_job_id("abcd1234", 8, 1)}
    assert "setup" in (left / "device_markers.jsonl").read_text()
    assert (left / "agent.log").exists()
    assert list(never_begun.iterdir()) == list(elsewhere.iterdir()) == []
    channel._process.wait(timeout=30)
