"""Class 3: devices that never end. Whatever they send, and however slowly, the host keeps to its deadline."""

import hashlib
import sys
import time
from pathlib import Path

import pytest

from device_agents.job import BlobRef
from device_agents.session import agent_session, link, running_job
from device_agents.session.agent_session import AgentSession
from device_agents.transport import local, sftp
from device_agents.transport.ssh import SshTransport
from joulefleet.errors import DeviceError, DeviceUnreachable
from tests.device_agents.agents import a_model, session_with, softmax
from tests.device_agents.conftest import sshd
from tests.device_agents.ssh_server import ssh_server
from tests.device_agents.test_agent_untrusted import PRELUDE

__all__ = ["sshd"]

TALK = PRELUDE + (
    "import time\n"
    "def heartbeats():\n"
    "    while True:\n"
    "        say('heartbeat', t_dev_ns=time.monotonic_ns(), phase='epoch', epoch=1)\n"
    "        time.sleep(0.05)\n"
    "def drip(line):\n"
    "    for byte in line:\n"
    "        sys.stdout.buffer.write(bytes([byte])); sys.stdout.buffer.flush(); time.sleep(0.05)\n"
    "hello()\n"
)
DEADLINE_S = 0.3


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_job, "GRACE_S", 0.3)
    monkeypatch.setattr(agent_session, "GRACE_S", 0.3)
    monkeypatch.setattr(agent_session, "TRANSFER_TIMEOUT_S", 0.6)
    monkeypatch.setattr(running_job, "TRANSFER_TIMEOUT_S", 0.6)
    monkeypatch.setattr(link, "TRANSFER_TIMEOUT_S", 0.6)
    monkeypatch.setattr(local, "HANG_UP_S", 0.1)


ATTACKS = {
    "heartbeats instead of an acceptance": "hear(); heartbeats()",
    "heartbeats after the acceptance": "j = hear()['job_id']; say('accepted', job_id=j); heartbeats()",
    "telemetry for ever": "j = hear()['job_id']; say('accepted', job_id=j)\n"
    "while True: say('telemetry', t_dev_ns=1, values={}); time.sleep(0.05)",
    "heartbeats after the probe": "j = hear()['job_id']; say('accepted', job_id=j)\n"
    "say('probe_done', job_id=j, loss=1.0, duration_ns=1, samples=1); heartbeats()",
    "markers for ever": "j = hear()['job_id']; say('accepted', job_id=j); i = 0\n"
    "while True:\n"
    "    say('marker', marker=dict(kind='epoch', edge='start', epoch=1, t_dev_ns=i, seq=i)); i += 1\n"
    "    time.sleep(0.05)",
}


@pytest.mark.parametrize("program", ATTACKS.values(), ids=ATTACKS.keys())
@pytest.mark.parametrize("quiet", [True, False])
def test_signs_of_life_do_not_extend_a_job(program: str, quiet: bool) -> None:
    with session_with(TALK + program) as channel:
        session = AgentSession(channel, timeout_s=20.0)
        began_s = time.monotonic()
        with pytest.raises(DeviceError, match=r"the job was not over after 0\.6 s"):
            session.run_round(softmax(deadline_s=DEADLINE_S, quiet=quiet))
    assert time.monotonic() - began_s < 4.5


def test_single_bytes_do_not_extend_a_job() -> None:
    with session_with(TALK + "hear(); drip(b' ' * 60_000)") as channel:
        session = AgentSession(channel, timeout_s=30.0)
        began_s = time.monotonic()
        with pytest.raises(DeviceError):
            session.run_round(softmax(deadline_s=DEADLINE_S))
    assert time.monotonic() - began_s < 4.5


def test_a_result_that_trickles_in_is_not_waited_for() -> None:
    program = (
        "j = hear()['job_id']; say('accepted', job_id=j)\n"
        "say('probe_done', job_id=j, loss=1.0, duration_ns=1, samples=1); hear()\n"
        "say('blob', job_id=j, name='result', size=5000, sha256='0' * 64); drip(b'x' * 5000)"
    )
    with session_with(TALK + program) as channel:
        session = AgentSession(channel, timeout_s=30.0)
        began_s = time.monotonic()
        with pytest.raises(DeviceError):
            session.run_round(softmax(deadline_s=60.0, upload=True))
    assert time.monotonic() - began_s < 4.5


def test_a_device_that_takes_its_blob_byte_by_byte() -> None:
    model = a_model() * 100  # more than a pipe holds
    program = (
        "import os\n"
        "j = hear()['job_id']; say('accepted', job_id=j)\n"
        f"say('want', job_id=j, name='model', sha256='x', size={len(model)})\n"
        "while True: os.read(0, 1); time.sleep(0.02)"
    )
    with session_with(TALK + program) as channel:
        session = AgentSession(channel, timeout_s=30.0)
        began_s = time.monotonic()
        with pytest.raises(DeviceUnreachable, match="bytes untaken"):
            session.run_round(softmax(deadline_s=60.0, model=BlobRef.of(model)), blobs={"model": model})
    assert time.monotonic() - began_s < 4.5


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda s: s.ping(20), "the exchange of clocks"),
        (lambda s: s.require_free(), "require_free"),
        (lambda s: s.cancel_orphan("j"), "cancel_orphan"),
        (lambda s: s.forget("j"), "forget"),
        (lambda s: s.clear_cache(), "clear_cache"),
        (lambda s: s.collect("j"), "the wait for the end of job j"),
        (lambda s: s.attach("j", wait_s=0.5), "the wait for the end of job j"),
        (lambda s: s.fetch_result("j"), "the result of job j"),
    ],
)
def test_no_command_is_held_up_by_heartbeats(what: object, message: str) -> None:
    with session_with(TALK + "hear(); heartbeats()") as channel:
        session = AgentSession(channel)
        session._link.timeout_s = 0.6
        began_s = time.monotonic()
        with pytest.raises(DeviceError, match=message):
            what(session)  # type: ignore[operator]
    assert time.monotonic() - began_s < 4.5


def test_pongs_that_are_each_just_in_time_do_not_add_up() -> None:
    program = "while True: n = hear()['nonce']; time.sleep(0.2); say('pong', nonce=n, t_dev_ns=1)"
    with session_with(TALK + program) as channel:
        session = AgentSession(channel)
        session._link.timeout_s = 0.6
        began_s = time.monotonic()
        with pytest.raises(DeviceError, match="the exchange of clocks"):
            session.ping(20)
    assert time.monotonic() - began_s < 4.5


def test_a_journal_in_crumbs_is_not_waited_for() -> None:
    program = (
        "j = hear()['job_id']; status = dict(job_id=j, state='done', result=None)\n"
        "say('status', **status, journal_bytes=100_000, telemetry_bytes=0, log_bytes=0)\n"
        "for i in range(100_000):\n"
        "    hear(); say('chunk', job_id=j, file='journal', offset=i, size=1)\n"
        "    sys.stdout.buffer.write(b'x'); sys.stdout.buffer.flush(); time.sleep(0.02)"
    )
    with session_with(TALK + program) as channel:
        session = AgentSession(channel, timeout_s=20.0)
        began_s = time.monotonic()
        with pytest.raises(DeviceError, match="the journal of job j"):
            session.collect("j")
    assert time.monotonic() - began_s < 4.5


@pytest.mark.parametrize("hello", [b"", b"\0\0\0\5\2\0\0\0\3"], ids=["from the start", "after the greeting"])
def test_a_file_server_that_answers_byte_by_byte(
    tmp_path: Path, sshd: str, monkeypatch: pytest.MonkeyPatch, hello: bytes
) -> None:
    monkeypatch.setattr(sftp, "TRANSFER_TIMEOUT_S", 1.0)
    program = tmp_path / "drip"
    program.write_text(
        f"#!{sys.executable}\nimport sys, time\nout = sys.stdout.buffer\n"
        f"out.write({hello!r} + b'\\0\\0\\xff\\xff\\2'); out.flush()\n"
        "while True: out.write(b'x'); out.flush(); time.sleep(0.1)\n"
    )
    program.chmod(0o755)
    with (
        ssh_server(tmp_path / "server", sshd, f"ForceCommand {program}") as server,
        SshTransport(server.target(), timeout_s=5.0) as transport,
    ):
        transport._timeout_s = 1.0
        began_s = time.monotonic()
        with pytest.raises(DeviceUnreachable, match="no answer in time"):
            transport.upload(b"payload", f"{tmp_path}/payload", hashlib.sha256(b"payload").hexdigest())
    assert time.monotonic() - began_s < 10


def test_an_honest_job_that_talks_all_the_time_is_not_cut(tmp_path: Path) -> None:
    from tests.device_agents.agents import session_on

    with session_on(tmp_path) as session:
        result = session.run_round(softmax(quiet=False, telemetry_hz=5, deadline_s=30.0))
    assert result.done.outcome == "finished"
