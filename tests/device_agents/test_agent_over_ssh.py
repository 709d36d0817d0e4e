"""The agent behind a real OpenSSH server: a whole round, and a job that outlives its connection."""

import sys
from pathlib import Path

import pytest

from device_agents.deploy.bundle import build_bundle
from device_agents.deploy.install import Installation, start_agent
from device_agents.job import BlobRef, SyncPattern
from device_agents.protocol import EpochMarker, Phase
from device_agents.session.agent_session import AgentSession
from device_agents.transport.host_keys import fetch_host_key, trust
from device_agents.transport.ssh import SshTransport
from tests.device_agents.agents import a_model, softmax
from tests.device_agents.duty_cycle import DutyCycle
from tests.device_agents.relay import relay
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
    assert {m.kind for m in result.markers} == set(Phase) - {Phase.SYNC, Phase.IDLE, Phase.LOAD, Phase.WARMUP}


def test_devices_of_different_speeds_do_the_same_work(server: SshServer, place: Installation) -> None:
    """The same weights to the bit, and the time that a slow one stood still is in its markers."""
    models = []
    for share in (1.0, 0.5, 0.25):
        with SshTransport(server.target()) as device, start_agent(device, build_bundle(), place) as channel:
            session = AgentSession(channel)
            with DutyCycle(session.hello.pid, share) as cycle:
                result = session.run_round(softmax(samples=200_000, epochs=2, upload=True))
        assert result.model is not None
        models.append(result.model["weights"].tobytes())
        epochs = [m.t_dev_ns for m in result.markers if m.kind is Phase.EPOCH]
        assert result.probe is not None
        assert result.probe.duration_ns >= cycle.stopped_ns(*epochs[:2])
        assert (cycle.stopped_ns(*epochs[:2]) > 0) is (share < 1)
    assert len(set(models)) == 1


UNDER_WAY_NS = 200_000_000
"""What was sent before a phase may still arrive in it."""


def test_a_quiet_job_leaves_the_link_alone_between_its_markers(
    server: SshServer, place: Installation, tmp_path: Path
) -> None:
    """Device and relay are this machine: one clock. The patterns last long enough for several keepalives."""
    job = softmax(sync=SyncPattern(order=3, bit_ns=150_000_000), telemetry_hz=5)
    with relay(server.port) as link:
        trust(tmp_path / "known", "127.0.0.1", link.port, fetch_host_key("127.0.0.1", link.port))
        target = server.target(port=link.port, known_hosts=tmp_path / "known")
        with (
            SshTransport(target, keepalive_s=0.1) as device,
            start_agent(device, build_bundle(), place) as channel,
        ):
            session = AgentSession(channel)
            for quiet in (True, False):
                result = session.run_round(job.model_copy(update={"quiet": quiet}))
                patterns = [m.t_dev_ns for m in result.markers if m.kind is Phase.SYNC]
                during = [
                    moved
                    for start_ns, end_ns in zip(patterns[::2], patterns[1::2], strict=True)
                    for moved in link.moved
                    if start_ns + UNDER_WAY_NS < moved.t_ns < end_ns
                ]
                assert (during == []) is quiet


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
