"""Logging in with a password to a real OpenSSH server, and what becomes of the password: nothing."""

import contextlib
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from device_agents.transport import ssh_login
from device_agents.transport.host_keys import fetch_host_key, trust
from device_agents.transport.ssh import SshTransport
from joulefleet.errors import DeviceError
from power.emulated.options import EmulatorOptions
from power.emulated.service import EmulatorProcess
from tests.device_agents.accounts import PASSWORD, USER, accounts
from tests.device_agents.ssh_server import SshServer, make_key, ssh_server

VARIABLE = "JOULEFLEET_TEST_PASSWORD"
ONLY_PASSWORDS = "PasswordAuthentication yes\nPubkeyAuthentication no\nLogLevel DEBUG1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, sshd: str) -> Iterator[SshServer]:
    folder = tmp_path_factory.mktemp("sshd")
    with ssh_server(folder / "server", sshd, ONLY_PASSWORDS, host=accounts(folder / "etc")) as running:
        make_key(running.folder / "stranger")
        yield running


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    ssh_login._typed.clear()


def connect(server: SshServer, **changes: object) -> SshTransport:
    return SshTransport(server.target(user=USER, key=server.folder / "stranger", **changes))


def test_the_password_of_the_environment_logs_in(server: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, PASSWORD)
    with connect(server, password_env=VARIABLE) as device:
        assert device.run(["sh", "-c", 'echo "$USER"']).stdout == f"{USER}\n".encode()
        assert VARIABLE.encode() not in device.run(["env"]).stdout


def test_a_wrong_password_is_a_refused_login(server: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, PASSWORD + "x")
    with pytest.raises(DeviceError, match="login refused") as caught:
        connect(server, password_env=VARIABLE)
    assert not caught.value.transient
    assert PASSWORD not in repr((caught.value.message, caught.value.hint, caught.value.__cause__))


def test_a_typed_password_is_asked_for_once(server: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bench connects for every job: nobody wants to type it again, and a wrong one must not be kept."""
    typed = iter([PASSWORD + "x", PASSWORD])
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return next(typed)

    monkeypatch.setattr("device_agents.transport.ssh_login.getpass.getpass", answer)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    with pytest.raises(DeviceError, match="login refused"):
        connect(server)
    for _ in range(2):
        with connect(server) as device:
            assert device.run(["true"]).returncode == 0
    assert asked == [f"password of {USER} on [127.0.0.1]:{server.port}: "] * 2


def inventory(folder: Path, server: SshServer, more: str = "") -> Path:
    path = folder / "devices.toml"
    path.write_text(
        f'[devices.pi]\nhost = "{server.host}"\nport = {server.port}\nuser = "{USER}"\n'
        f'key = "{server.folder}/stranger"\npython = "{sys.executable}"\nstate = "{folder}/state"\n{more}'
    )
    key = fetch_host_key(server.host, server.port)
    trust(path.with_suffix(".known_hosts"), server.host, server.port, key)
    return path


def files_with(secret: str, folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file() and secret.encode() in p.read_bytes()]


@pytest.mark.parametrize("right", [True, False])
def test_a_run_leaves_no_trace_of_the_password(tmp_path: Path, server: SshServer, right: bool) -> None:
    secret = PASSWORD if right else PASSWORD[::-1]
    (tmp_path / "plan.toml").write_text(
        'models = ["softmax"]\nbackends = ["numpy"]\nlocal_epochs = 1\nsamples = 20000\nwarmup_epochs = 0\n'
        "sync_pattern = false\n[repetitions]\ncount = 1\n"
        "[timing]\nidle_s = 0.5\nsettle_s = 0\ndecision_wait_s = 0.2\n[retry]\nattempts = 3\nwait_s = 0.1\n"
    )
    with EmulatorProcess("monsoon-lvpm", EmulatorOptions(signal="constant:current=0.4,voltage=4.0")) as meter:
        devices = inventory(
            tmp_path,
            server,
            f'password_env = "{VARIABLE}"\n[devices.pi.meter]\nkind = "monsoon-lvpm"\n'
            f'port = "{meter.address}"\nvoltage_v = 4\nvoltage_max_v = 4.2\ncurrent_limit_a = 3\n',
        )
        command = ["bench", "run", str(tmp_path / "plan.toml"), "--inventory", str(devices), "-v"]
        done = subprocess.run(
            [sys.executable, "-m", "harness", *command, "--root", str(tmp_path / "runs")],
            env={**os.environ, VARIABLE: secret},
            capture_output=True,
            text=True,
        )
    assert done.returncode == (0 if right else 1), done.stderr
    assert len(list((tmp_path / "runs").rglob("capture.json"))) == right
    assert ("login refused" in done.stderr) is not right
    assert ("profile: " in done.stdout) is right
    assert len(list(tmp_path.rglob("*"))) > 15  # there is something to look through
    assert files_with(secret, tmp_path) == []
    assert secret not in done.stdout + done.stderr + server.log


def typed_at_the_prompt(command: list[str], secret: str) -> tuple[int, str]:
    """Run a command on a terminal of its own and type a password when it asks; all that was shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(["setsid", "--ctty", *command], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # what Linux says when the other side is closed
        while data := os.read(ours, 4096):
            asked_before, shown = b"password of" in shown, shown + data
            if b"password of" in shown and not asked_before:
                time.sleep(0.2)  # getpass stops the echo after it has shown its prompt, throwing input away
                os.write(ours, secret.encode() + b"\n")
    os.close(ours)
    return process.wait(timeout=60), shown.decode(errors="replace")


@pytest.mark.parametrize("right", [True, False])
def test_a_password_is_typed_at_the_prompt(tmp_path: Path, server: SshServer, right: bool) -> None:
    secret = PASSWORD if right else PASSWORD[::-1]
    command = ["bench", "ping", "--inventory", str(inventory(tmp_path, server)), "pi", "-v"]
    code, shown = typed_at_the_prompt([sys.executable, "-m", "harness", *command], secret)
    assert code == (0 if right else 4), shown
    assert ("login refused" in shown) is not right
    assert secret not in shown + server.log
    assert files_with(secret, tmp_path) == []
