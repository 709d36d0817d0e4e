"""The SSH transport against a real OpenSSH server."""

import hashlib
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import pytest

from device_agents.payload.link.wire import MAX_LINE_BYTES
from device_agents.transport import LocalTransport
from device_agents.transport.host_keys import HostKey, fetch_host_key, known_keys, trust
from device_agents.transport.ssh import SshTarget, SshTransport
from device_agents.transport.ssh_errors import bounded
from joulefleet.errors import AgentDied, DeviceError, DeviceFull, DeviceUnreachable
from tests.device_agents.relay import relay
from tests.device_agents.ssh_server import OLD_SERVER, SshServer, free_port, make_key, ssh_server


@pytest.fixture
def device(server: SshServer) -> Iterator[SshTransport]:
    with SshTransport(server.target()) as transport:
        yield transport


NASTY = ["a b", "$HOME", "`id`", "'", '"', "\\", ";rm -rf /", "*", "é", "", "-n", "a\nb", "&&", "|", ">x"]


def test_arguments_arrive_as_they_are(device: SshTransport) -> None:
    script = "import json,sys; print(json.dumps(sys.argv[1:]))"
    done = device.run([sys.executable, "-c", script, *NASTY])
    assert done.returncode == 0
    import json

    assert json.loads(done.stdout) == NASTY


def test_exit_codes_streams_and_input(device: SshTransport) -> None:
    script = "import sys; d = sys.stdin.read(); print(d.upper()); print('oops', file=sys.stderr); sys.exit(7)"
    done = device.run([sys.executable, "-c", script], stdin=b"hello")
    assert (done.returncode, done.stdout, done.message) == (7, b"HELLO\n", "oops")
    assert device.run(["no-such-command"]).returncode == 127


def test_a_command_that_hangs_hits_its_deadline(device: SshTransport) -> None:
    with pytest.raises(DeviceUnreachable, match="no answer in time"):
        device.run(["sleep", "30"], timeout_s=0.3)
    assert device.run(["true"]).returncode == 0  # the link survives


def test_output_is_bounded(device: SshTransport) -> None:
    with pytest.raises(DeviceError, match="printed more than"):
        device.run([sys.executable, "-c", "print('x' * 50_000_000)"])


def test_a_channel_talks_both_ways(device: SshTransport) -> None:
    with device.open(["cat"]) as channel:
        channel.send(b"one\ntwo\n")
        assert channel.receive_line(5) == b"one"
        assert channel.receive_line(5) == b"two"
        blob = secrets.token_bytes(1_000_000)
        channel.send(blob)
        assert channel.receive_exactly(len(blob), 10) == blob
        with pytest.raises(DeviceUnreachable, match=r"silent for 0\.1 s"):
            channel.receive_line(0.1)


def test_a_channel_that_ends(device: SshTransport) -> None:
    with device.open(["echo", "bye"]) as channel:
        assert channel.receive_line(5) == b"bye"
        with pytest.raises(DeviceUnreachable, match="ended unexpectedly"):
            channel.receive_line(5)
    command = [sys.executable, "-c", "raise RuntimeError('no luck')"]
    with (
        device.open(command) as channel,
        pytest.raises(AgentDied, match=r"ended unexpectedly \(exit status 1\): RuntimeError: no luck"),
    ):
        channel.receive_line(30)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL", "SIGILL"])
@pytest.mark.parametrize("over_ssh", [True, False])
def test_a_command_that_a_signal_ends(device: SshTransport, name: str, over_ssh: bool) -> None:
    transport = device if over_ssh else LocalTransport()
    program = f"import os, signal; print(1, flush=True); os.kill(os.getpid(), signal.{name})"
    with transport.open([sys.executable, "-c", program]) as channel:
        assert channel.receive_line(30) == b"1"
        with pytest.raises(AgentDied, match=rf"\(killed by {name}\)") as caught:
            channel.receive_line(30)
    assert caught.value.transient
    assert "crashed" in caught.value.hint
    done = transport.run([sys.executable, "-c", program])
    assert (done.returncode != 0, done.stdout, done.ended) == (True, b"1\n", f"killed by {name}")
    in_a_shell = transport.run(["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", program])
    assert in_a_shell.ended == f"killed by {name}"


def test_a_link_that_is_cut_is_no_death(device: SshTransport) -> None:
    with device.open(["cat"]) as channel:
        device._transport.close()
        with pytest.raises(DeviceUnreachable) as caught:
            channel.receive_line(5)
    assert not isinstance(caught.value, AgentDied)


def test_an_endless_line_is_cut_off(device: SshTransport) -> None:
    limit = f"longer than {MAX_LINE_BYTES}"
    command = [sys.executable, "-c", "print('x' * 1_000_000)"]
    with device.open(command) as channel, pytest.raises(DeviceError, match=limit):
        channel.receive_line(5)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_upload_is_atomic_verified_and_makes_folders(device: SshTransport, tmp_path: Path) -> None:
    data = secrets.token_bytes(700_000)
    target = tmp_path / "a" / "b" / "payload"
    seen: list[int] = []
    assert device.upload(data, str(target), sha(data), on_progress=seen.append) == len(data)
    assert target.read_bytes() == data
    assert seen[-1] == len(data)
    assert [p.name for p in target.parent.iterdir()] == ["payload"]


def test_an_upload_is_on_the_disk_before_it_has_its_name(
    device: SshTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: list[object] = []
    request = paramiko.SFTPClient._request

    def noted(self: paramiko.SFTPClient, kind: int, *arguments: object) -> object:
        answer = request(self, kind, *arguments)
        answered.append(arguments[0])
        return answer

    monkeypatch.setattr(paramiko.SFTPClient, "_request", noted)
    data = secrets.token_bytes(1000)
    device.upload(data, str(tmp_path / "payload"), sha(data))
    assert [a for a in answered if str(a).endswith("openssh.com")] == [
        "fsync@openssh.com",
        "posix-rename@openssh.com",
    ]


def test_a_server_that_refuses_to_sync_is_taken_as_it_is(tmp_path: Path, sshd: str) -> None:
    refusing, data = "ForceCommand internal-sftp -P fsync", secrets.token_bytes(1000)
    with ssh_server(tmp_path / "sshd", sshd, refusing) as server, SshTransport(server.target()) as device:
        device.upload(data, str(tmp_path / "payload"), sha(data))
    assert (tmp_path / "payload").read_bytes() == data


def test_a_cut_upload_continues(device: SshTransport, tmp_path: Path) -> None:
    data = secrets.token_bytes(700_000)
    part = tmp_path / f"payload.{sha(data)[:16]}.part"
    part.write_bytes(data[:300_000])
    assert device.upload(data, str(tmp_path / "payload"), sha(data)) == 400_000
    assert (tmp_path / "payload").read_bytes() == data


def test_a_spoilt_part_is_noticed_and_the_next_try_works(device: SshTransport, tmp_path: Path) -> None:
    data = secrets.token_bytes(1000)
    part = tmp_path / f"payload.{sha(data)[:16]}.part"
    part.write_bytes(b"wrong")
    with pytest.raises(DeviceError, match="did not arrive whole"):
        device.upload(data, str(tmp_path / "payload"), sha(data))
    assert not (tmp_path / "payload").exists()
    device.upload(data, str(tmp_path / "payload"), sha(data))
    assert (tmp_path / "payload").read_bytes() == data


def test_the_announced_hash_must_fit(device: SshTransport, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="does not have the hash"):
        device.upload(b"data", str(tmp_path / "x"), "0" * 64)


def test_download_is_bounded(device: SshTransport, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    assert device.download(str(tmp_path / "file"), max_bytes=100) == b"x" * 100
    with pytest.raises(DeviceError, match="more than the 99 allowed"):
        device.download(str(tmp_path / "file"), max_bytes=99)
    with pytest.raises(DeviceError, match="no file"):
        device.download(str(tmp_path / "absent"), max_bytes=1)


def test_an_unknown_host_key_is_refused_with_its_fingerprint(server: SshServer, tmp_path: Path) -> None:
    target = server.target(trusted=False)
    target = SshTarget(**{**_fields(target), "known_hosts": tmp_path / "empty"})
    with pytest.raises(DeviceError, match="its host key is not known") as caught:
        SshTransport(target)
    assert fetch_host_key("127.0.0.1", server.port).fingerprint in caught.value.message
    assert "bench trust" in caught.value.hint
    assert not caught.value.transient


def _fields(target: SshTarget) -> dict[str, object]:
    return {name: getattr(target, name) for name in SshTarget.__slots__}


def test_the_fingerprint_is_ssh_keygens(server: SshServer) -> None:
    import subprocess

    shown = subprocess.run(
        ["ssh-keygen", "-lf", str(server.folder / "host.pub")], capture_output=True, text=True, check=True
    ).stdout
    assert fetch_host_key("127.0.0.1", server.port).fingerprint in shown


def test_a_changed_host_key_is_refused(server: SshServer, tmp_path: Path) -> None:
    make_key(tmp_path / "other")
    kind, blob = (tmp_path / "other.pub").read_text().split()[:2]
    import base64

    stranger = HostKey(kind, base64.b64decode(blob))
    known = tmp_path / "known_hosts"
    trust(known, "127.0.0.1", server.port, stranger)
    target = SshTarget(**{**_fields(server.target()), "known_hosts": known})
    with pytest.raises(DeviceError, match="has CHANGED") as caught:
        SshTransport(target)
    assert not caught.value.transient
    real = fetch_host_key("127.0.0.1", server.port)
    with pytest.raises(DeviceError, match="another key already"):
        trust(known, "127.0.0.1", server.port, real)
    trust(known, "127.0.0.1", server.port, real, replace=True)
    SshTransport(target).close()
    assert list(known_keys(known, "127.0.0.1", server.port).values()) == [real]


def test_a_refused_login(server: SshServer, tmp_path: Path) -> None:
    make_key(tmp_path / "stranger")
    with pytest.raises(DeviceError, match="login refused") as caught:
        SshTransport(server.target(key=tmp_path / "stranger"))
    assert not caught.value.transient


def test_an_encrypted_key_asks_for_the_agent(server: SshServer, tmp_path: Path) -> None:
    make_key(tmp_path / "locked", passphrase="secret")
    with pytest.raises(DeviceError, match="private key is encrypted") as caught:
        SshTransport(server.target(key=tmp_path / "locked"))
    assert "ssh-add" in caught.value.hint


def test_a_missing_or_broken_key_file(server: SshServer, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="no private key at"):
        SshTransport(server.target(key=tmp_path / "absent"))
    (tmp_path / "broken").write_text("not a key")
    with pytest.raises(DeviceError, match="is not a private key"):
        SshTransport(server.target(key=tmp_path / "broken"))


def test_a_password_comes_from_the_environment_only(server: SshServer, tmp_path: Path) -> None:
    make_key(tmp_path / "stranger")
    with pytest.raises(DeviceError, match="NO_SUCH_VARIABLE is not set"):
        SshTransport(server.target(key=tmp_path / "stranger", password_env="NO_SUCH_VARIABLE"))


def test_the_ssh_agent_is_asked(server: SshServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import subprocess

    socket_path = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket_path)], stdout=subprocess.DEVNULL)
    try:
        while not socket_path.exists():
            time.sleep(0.01)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket_path))
        monkeypatch.setenv("HOME", str(tmp_path))
        subprocess.run(
            ["ssh-add", "-q", str(server.folder / "client")], check=True, stderr=subprocess.DEVNULL
        )
        with SshTransport(server.target(key=None)) as device:
            assert device.run(["true"]).returncode == 0
    finally:
        agent.terminate()
        agent.wait()


def test_nobody_there() -> None:
    target = SshTarget(host="127.0.0.1", port=free_port(), known_hosts=Path("none"))
    with pytest.raises(DeviceUnreachable, match="connection refused"):
        SshTransport(target)


@pytest.mark.parametrize("host", ["host.invalid", "192.168.1..5", "x" * 64])  # the last two are no names
def test_no_such_host(host: str) -> None:
    with pytest.raises(DeviceError, match="no such host"):
        SshTransport(SshTarget(host=host, known_hosts=Path("none")))
    with pytest.raises(DeviceError, match="no such host"):
        fetch_host_key(host, 22)


def test_a_server_that_only_knows_sha1_is_explained(tmp_path: Path, sshd: str) -> None:
    with (
        ssh_server(tmp_path / "old", sshd, OLD_SERVER) as old,
        pytest.raises(DeviceError, match="no algorithm in common") as caught,
    ):
        SshTransport(old.target(trusted=False))
    assert "SHA-1" in caught.value.hint


def test_through_a_jump_host(server: SshServer, tmp_path: Path, sshd: str) -> None:
    with ssh_server(tmp_path / "gate", sshd) as gate:
        with SshTransport(server.target(jump=gate.target())) as device:
            assert device.run(["echo", "far"]).stdout == b"far\n"
        with pytest.raises(DeviceError, match="its host key is not known"):
            fields = {**_fields(gate.target()), "known_hosts": tmp_path / "empty"}
            SshTransport(server.target(jump=SshTarget(**fields)))


def test_a_cut_link_is_transient_and_says_so(tmp_path: Path, sshd: str) -> None:
    with ssh_server(tmp_path / "mortal", sshd) as mortal:
        device = SshTransport(mortal.target())
        channel = device.open(["cat"])
        channel.send(b"still here\n")
        assert channel.receive_line(5) == b"still here"
        for child in (
            Path(f"/proc/{mortal.process.pid}/task/{mortal.process.pid}/children").read_text().split()
        ):
            os.kill(int(child), signal.SIGKILL)  # the server's process for this connection
        with pytest.raises(DeviceUnreachable) as caught:
            channel.receive_line(5)
        assert caught.value.transient
        with pytest.raises(DeviceUnreachable):
            device.run(["true"])
        device.close()


@pytest.mark.parametrize("size", [1_100_000, 12_000_000])  # one shows at the end, one on the way
def test_a_file_that_does_not_fit_on_the_disk(
    device: SshTransport, small_disk: Callable[[], Path], size: int
) -> None:
    data = secrets.token_bytes(size)
    target = small_disk() / "payload"
    with pytest.raises(DeviceFull, match="no space left on the device") as caught:
        device.upload(data, str(target), sha(data))
    assert caught.value.transient
    assert list(target.parent.iterdir()) == []  # what is of no use makes room
    assert device.upload(b"small", str(target), sha(b"small")) == 5


def test_a_place_that_cannot_be_written_to_is_no_broken_link(device: SshTransport, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DeviceError) as caught:
        device.upload(b"data", str(tmp_path / "file" / "payload"), sha(b"data"))
    assert not caught.value.transient
    with pytest.raises(DeviceError) as caught:  # not even root writes here
        device.upload(b"data", "/proc/payload", sha(b"data"))
    assert not caught.value.transient


def frozen(server: SshServer) -> list[int]:
    """Stop the server's processes for its connections: the machine is there, and answers nothing."""
    task = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    found: list[int] = []
    waiting = [int(child) for child in task.read_text().split()]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        os.kill(pid, signal.SIGSTOP)
    return found


def test_every_operation_has_a_deadline(tmp_path: Path, sshd: str) -> None:
    with ssh_server(tmp_path / "frozen", sshd) as server:
        operations: list[Callable[[SshTransport], object]] = [
            lambda device: device.run(["true"]),
            lambda device: device.open(["cat"]),
            lambda device: device.upload(b"data", str(tmp_path / "file"), sha(b"data")),
            lambda device: device.download(str(tmp_path / "file"), max_bytes=10),
        ]
        devices = [SshTransport(server.target()) for _ in operations]
        for device in devices:
            device._timeout_s = 1.5
        devices[3].upload(b"data", str(tmp_path / "file"), sha(b"data"))  # leaves a session open
        stopped = frozen(server)
        try:
            for device, operation in zip(devices, operations, strict=True):
                with pytest.raises(DeviceUnreachable) as caught:
                    operation(device)
                assert caught.value.transient
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        assert devices[0].run(["true"]).returncode == 0
        assert devices[3].download(str(tmp_path / "file"), max_bytes=10) == b"data"
        for device in devices:
            device.close()


def test_an_exec_request_that_is_not_answered_hits_its_deadline(tmp_path: Path, sshd: str) -> None:
    """The channel is open and the server freezes: paramiko alone would wait for ever."""
    with ssh_server(tmp_path / "frozen", sshd) as server, SshTransport(server.target()) as device:
        channel = device._transport.open_session()
        stopped = frozen(server)
        with pytest.raises(TimeoutError), bounded(channel, 0.2):
            channel.exec_command("true")
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


def test_keepalives_can_be_switched_off(server: SshServer, tmp_path: Path) -> None:
    with relay(server.port) as link:
        trust(tmp_path / "known", "127.0.0.1", link.port, fetch_host_key("127.0.0.1", link.port))
        target = server.target(port=link.port, known_hosts=tmp_path / "known")

        def moved() -> int:
            time.sleep(0.2)  # what is under way
            before = len(link.moved)
            time.sleep(0.8)
            return len(link.moved) - before

        with SshTransport(target, keepalive_s=0.1) as device, device.open(["cat"]) as channel:
            assert moved() > 0
            with channel.without_keepalive():
                assert moved() == 0
                with device.without_keepalive():
                    pass
                assert moved() == 0  # the outer one still holds
            assert moved() > 0
        with SshTransport(target, keepalive_s=0) as device:
            assert device.run(["true"]).returncode == 0
            assert moved() == 0


def test_a_password_is_asked_for_where_there_is_somebody_to_ask(
    tmp_path: Path, sshd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return "wrong"

    make_key(tmp_path / "stranger")
    monkeypatch.setattr("device_agents.transport.ssh_login.getpass.getpass", answer)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for takes_passwords in (False, True):
        extra = "PasswordAuthentication yes" if takes_passwords else ""
        with ssh_server(tmp_path / f"server{takes_passwords}", sshd, extra) as server:
            with pytest.raises(DeviceError, match="login refused"):
                SshTransport(server.target(key=tmp_path / "stranger"))
            assert bool(asked) is takes_passwords
    assert f"on [127.0.0.1]:{server.port}" in asked[0]
