"""Jobs that outlived the link they were started over."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from device_agents.session.agent_session import AgentSession
from harness.bench.job.failures import device_job_id, retryable, settle_orphans
from joulefleet.errors import DeviceBusy
from tests.device_agents.agents import cut, open_agent, session_on, softmax, wait_for_exit

# Meters are recorded in real time: such tests run one after the other, not against each other.
pytestmark = pytest.mark.xdist_group("bench")


@contextlib.contextmanager
def orphaned(state: Path, job_id: str) -> Iterator[None]:
    """A job that has lost its host, and would go on for minutes; on leaving, it has to have ended."""
    channel = open_agent(state)
    job = softmax(samples=100_000, epochs=10_000, probe=False, on_disconnect="finish")
    AgentSession(channel)._link.send({"type": "job", "job_id": job_id, **job.model_dump(mode="json")})
    journal = state / "jobs" / job_id / "journal.jsonl"
    while not journal.exists() or "epoch" not in journal.read_text():
        time.sleep(0.05)
    cut(channel)
    yield
    wait_for_exit(channel)


def test_a_job_that_still_runs_is_ended_and_fetched(tmp_path: Path) -> None:
    state, run = tmp_path / "state", tmp_path / "run"
    left = run / "failed" / "0007_pi_softmax-numpy-none_rep1-attempt2"
    never_begun = run / "failed" / "0008_pi_softmax-numpy-none_rep1-attempt1"
    elsewhere = run / "failed" / "0009_phone_softmax-numpy-none_rep1-attempt1"
    for folder in (left, never_begun, elsewhere):
        folder.mkdir(parents=True)
    job_id = device_job_id("abcd1234", 7, 2)
    settled: set[str] = set()
    with orphaned(state, job_id), session_on(state) as session:
        settle_orphans(session, run, "abcd1234", "pi", settled)
        assert not (state / "jobs" / job_id).exists()
    assert settled == {job_id, device_job_id("abcd1234", 8, 1)}
    assert "setup" in (left / "device_markers.jsonl").read_text()
    assert (left / "agent.log").exists()
    assert len(pq.read_table(left / "telemetry.parquet")) > 0
    assert list(never_begun.iterdir()) == list(elsewhere.iterdir()) == []


def test_a_job_of_another_run_is_named_and_left_alone(tmp_path: Path) -> None:
    """A new run where the old one should have been resumed, or a second host."""
    job_id = device_job_id("abcd1234", 7, 2)
    with orphaned(tmp_path, job_id), session_on(tmp_path) as session:
        with pytest.raises(DeviceBusy, match=f"job '{job_id}' is running on the device") as caught:
            settle_orphans(session, tmp_path / "run", "ef567890", "pi", set())
        assert retryable(caught.value)  # it may end while the others' jobs are done
        assert session.attach(job_id, wait_s=0.0).state == "running"
        session.cancel_orphan(job_id)
