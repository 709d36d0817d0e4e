"""The agent behind a real OpenSSH server: a whole round, and a job that outlives its connection."""

import sys
from pathlib import Path

import pytest

from device_agents.bundle import build_bundle
from device_agents.deploy import Installation, start_agent
from device_agents.job import BlobRef
from device_agents.protocol import EpochMarker, Phase
from device_agents.session import AgentSession
from device_agents.transport.ssh import SshTransport
from tests.device_agents.agents import a_model, softmax
from tests.device_agents.ssh_server import SshServer


@pytest.fixture
def place(tmp_path: Path) -> Installation:
    return Installation(state=str(tmp_path / "state"), python=sys.executable)


def test_a_round_with_transfers(server: SshServer, place: Installation) -> None:
    model = a_model()
    job = softmax(model=BlobRef.of(model), upload=True)
    with SshTransport(server.target()) as device, start_agent(device, build_bundle(), place) as channel:
        result = AgentSession(channel).run_round(job, blobs={"model": model})
    assert result.done.uploaded
    assert result.model is not None
    assert {m.kind for m in result.markers} == set(Phase) - {Phase.SYNC, Phase.IDLE}


@pytest.mark.parametrize("policy", ["stop", "finish"])
def test_a_job_whose_connection_is_closed(server: SshServer, place: Installation, policy: str) -> None:
    seen: list[EpochMarker] = []

    class Closed(Exception):
        pass

    device = SshTransport(server.target())

    def on_marker(marker: EpochMarker) -> None:
        seen.append(marker)
        if marker.epoch == 2:
            device.close()
            raise Closed

    session = AgentSession(start_agent(device, build_bundle(), place), on_marker=on_marker)
    with pytest.raises(Closed):
        session.run_round(
            softmax(samples=100_000, epochs=6, quiet=False, on_disconnect=policy, probe=False), job_id="left"
        )
    with SshTransport(server.target()) as again, start_agent(again, build_bundle(), place) as channel:
        record = AgentSession(channel).attach("left", wait_s=60)
    assert record.state == "done"
    assert record.markers[: len(seen)] == tuple(seen)
    assert record.end is not None
    assert record.end.outcome == ("finished" if policy == "finish" else "link_lost")
