"""A device in a network of its own, behind a real OpenSSH server, whose cable is pulled in every phase.

The job is quiet, as under a meter, so nobody talks when it happens. The device learns of it from its SSH
server, which asks after a silent host every second here and gives up after the second time.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from device_agents.deploy.bundle import build_bundle
from device_agents.deploy.install import Installation, start_agent
from device_agents.job import SyncPattern
from device_agents.payload.tensors import unpack_arrays
from device_agents.protocol import EpochMarker, Phase, ProbeDone
from device_agents.session.agent_session import AgentSession
from device_agents.session.job_record import JobRecord
from device_agents.session.running_job import JobResult, read_model
from device_agents.transport.ssh import SshTransport
from joulefleet.errors import DeviceUnreachable
from tests.device_agents.netns import Host, host
from tests.device_agents.phases import (
    BEFORE_THE_MODEL_IS_THERE,
    MODEL,
    PHASES,
    begins,
    is_prefix,
    job_of_all_phases,
)
from tests.device_agents.ssh_server import SshServer, ssh_server

# One worker for all that make namespaces: the addresses are counted per process.
pytestmark = pytest.mark.xdist_group("netns")

ANSWERS = {"download": b'{"type":"blob"', "upload": b'{"type":"got"'}
"""What the host sends in a phase."""

IMPATIENT = """
ClientAliveInterval 1
ClientAliveCountMax 1
"""


def stamped(journal: Path) -> list[EpochMarker]:
    """What the device has on its disk."""
    lines = journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []
    records = [json.loads(line) for line in lines]
    return [EpochMarker.model_validate(r["marker"]) for r in records if r["type"] == "marker"]


class Cut:
    """Pulls the cable when a phase begins, and lets the host give up when the device has ended the job."""

    def __init__(self, cable: Host, device: SshTransport, journal: Path, phase: str) -> None:
        self.done = threading.Event()
        self.stamped: list[EpochMarker] = []
        self._cable, self._device, self._journal, self._phase = cable, device, journal, phase
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Cut":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            _until(lambda: any(begins(marker, self._phase) for marker in stamped(self._journal)))
            self._cable.cut()
            self.stamped = stamped(self._journal)
            self.done.set()
            _until(lambda: b'\n{"type":"done"' in self._journal.read_bytes())
        finally:
            self.done.set()
            self._device.close()


def _until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.002)


def disturbed(cable: Host, server: SshServer, place: Installation, phase: str, policy: str) -> Cut:
    """Run a job whose cable is pulled in a phase; what the phase waits for from the host comes after that."""
    device = SshTransport(server.target())
    channel = start_agent(device, build_bundle(), place)
    job = job_of_all_phases(policy, sync=SyncPattern(order=3, bit_ns=50_000_000))
    if policy == "stop" and phase == "epochs":
        job = job.model_copy(update={"epochs": 10_000})  # it is to be interrupted, not to finish first
    with Cut(cable, device, Path(place.state) / f"jobs/{phase}/journal.jsonl", phase) as cut:
        send = channel.send

        def late(data: bytes, **limits: float) -> None:
            if data.startswith(ANSWERS.get(phase, b"never")):
                cut.done.wait(30)
            send(data, **limits)

        def decide(_: ProbeDone) -> bool:
            if phase == "wait":
                cut.done.wait(30)
            return True

        channel.send = late  # type: ignore[method-assign]
        with pytest.raises(DeviceUnreachable) as caught:
            AgentSession(channel).run_round(job, decide, blobs={"model": MODEL}, job_id=phase)
        assert caught.value.transient
    return cut


def collected(server: SshServer, place: Installation, job_id: str) -> tuple[JobRecord, bytes | None]:
    """Over a new connection."""
    with SshTransport(server.target()) as device, start_agent(device, build_bundle(), place) as channel:
        session = AgentSession(channel)
        record = session.attach(job_id, wait_s=30)
        has_result = record.end is not None and record.end.result is not None
        return record, session.fetch_result(job_id) if has_result else None


@dataclass(frozen=True)
class Outcome:
    stamped: list[EpochMarker]
    record: JobRecord
    result: bytes | None


def one_device(folder: Path, sshd: str, phase: str, policy: str) -> Outcome:
    place = Installation(state=str(folder / "state"), python=sys.executable)
    with host() as far, ssh_server(folder / "server", sshd, IMPATIENT, host=far) as server:
        cut = disturbed(far, server, place, phase, policy)
        far.mend()
        return Outcome(cut.stamped, *collected(server, place, phase))


def undisturbed(folder: Path, sshd: str, policy: str) -> JobResult:
    place = Installation(state=str(folder / "state"), python=sys.executable)
    with (
        host() as near,
        ssh_server(folder / "server", sshd, IMPATIENT, host=near) as server,
        SshTransport(server.target()) as device,
        start_agent(device, build_bundle(), place) as channel,
    ):
        job = job_of_all_phases(policy, sync=SyncPattern(order=3, bit_ns=500_000_000))
        return AgentSession(channel).run_round(job, blobs={"model": MODEL})


@pytest.mark.parametrize("policy", ["stop", "finish"])
def test_the_cable_is_pulled_in_every_phase(tmp_path: Path, sshd: str, policy: str) -> None:
    """As many devices at once as there are phases, beside one that is left alone.

    Most of the time is waiting for their servers to notice.
    """
    with ThreadPoolExecutor(len(PHASES) + 1) as pool:
        devices = {phase: pool.submit(one_device, tmp_path / phase, sshd, phase, policy) for phase in PHASES}
        healthy = pool.submit(undisturbed, tmp_path / "healthy", sshd, policy)
    assert healthy.result().done.uploaded
    for phase, device in devices.items():
        outcome = device.result()
        record, end = outcome.record, outcome.record.end
        assert record.state == "done", phase
        assert any(begins(marker, phase) for marker in outcome.stamped)
        assert is_prefix(outcome.stamped, record.markers), phase
        assert "link_lost" in [line.type for line in record.journal], phase
        assert end is not None
        if policy == "stop" or phase in BEFORE_THE_MODEL_IS_THERE:
            assert end.outcome == "link_lost", phase
        else:
            assert (end.outcome, end.epochs, end.uploaded) == ("finished", 3, False), phase
            ended = [m.epoch for m in record.markers if m.kind is Phase.EPOCH and m.edge == "end"]
            assert ended == [1, 2, 3], phase
            assert outcome.result is not None
            trained = read_model(outcome.result, MODEL)["weights"]
            assert not np.array_equal(trained, unpack_arrays(MODEL)["weights"]), phase
