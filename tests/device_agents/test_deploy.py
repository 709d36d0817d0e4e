"""Deployment onto real OpenSSH servers."""

import ast
import dataclasses
import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path

import pytest

from device_agents.deploy.bundle import ENTRY, Bundle, build_bundle
from device_agents.deploy.install import Installation, installed_payloads, remove_payloads, start_agent
from device_agents.deploy.readiness import DeviceReport, examine, install_environment, problems
from device_agents.job import Backend
from device_agents.session.agent_session import AgentSession
from device_agents.transport import LocalTransport
from device_agents.transport.ssh import SshChannel, SshTransport
from harness.bench.job.trial import try_backend
from joulefleet.errors import DeviceError
from tests.device_agents.ssh_server import SshServer, ssh_server


@pytest.fixture
def device(server: SshServer) -> Iterator[SshTransport]:
    with SshTransport(server.target()) as transport:
        yield transport


@pytest.fixture
def place(tmp_path: Path) -> Installation:
    return Installation(state=str(tmp_path / "state"), python=sys.executable)


def test_the_bundle_is_reproducible_and_self_contained() -> None:
    bundle = build_bundle()
    build_bundle.cache_clear()
    assert build_bundle() == bundle
    assert hashlib.sha256(bundle.data).hexdigest() == bundle.sha256
    names = zipfile.ZipFile(BytesIO(bundle.data)).namelist()
    assert "__main__.py" in names
    assert {name.split("/")[0] for name in names} == {"__main__.py", "device_agents"}
    assert not [name for name in names if "transport" in name or "session" in name]


def test_what_is_shipped_is_python_3_9() -> None:
    archive = zipfile.ZipFile(BytesIO(build_bundle().data))
    parsed = [ast.parse(archive.read(name), name, feature_version=(3, 9)) for name in archive.namelist()]
    assert len(parsed) > 10
    with pytest.raises(SyntaxError):  # so the version is looked at
        ast.parse("match x:\n    case 1: pass", feature_version=(3, 9))


def test_the_bundle_runs_without_this_repository(tmp_path: Path) -> None:
    (tmp_path / "agent.pyz").write_bytes(build_bundle().data)
    done = subprocess.run(
        [sys.executable, "-P", "-s", "agent.pyz"],
        input=b'{"type":"hello","version":1}\n',
        capture_output=True,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "JOULEFLEET_STATE": str(tmp_path / "state")},
    )
    assert json.loads(done.stdout.splitlines()[0])["type"] == "hello", done.stderr.decode()


class CountingTransport(SshTransport):
    commands = 0
    uploads = 0

    def open(self, argv: Sequence[str]) -> SshChannel:
        self.commands += 1
        return super().open(argv)

    def upload(self, data: bytes, path: str, sha256: str, **more: Callable[[int], None]) -> int:
        self.uploads += 1
        return super().upload(data, path, sha256, **more)


def test_uploaded_once_then_started_in_one_round_trip(server: SshServer, place: Installation) -> None:
    with CountingTransport(server.target()) as device:
        for number in range(3):
            with start_agent(device, build_bundle(), place) as channel:
                session = AgentSession(channel)
                assert len(session.ping(3)) == 3
            assert (device.uploads, device.commands) == (1, 2 + number)
    assert installed_payloads_of(place) == [build_bundle().name]


def installed_payloads_of(place: Installation) -> list[str]:
    return sorted(p.name for p in (Path(place.state) / "payloads").iterdir())


def another_bundle() -> Bundle:
    data = build_bundle().data + b"\0"
    return Bundle(data, hashlib.sha256(data).hexdigest())


def test_versions_lie_side_by_side_and_are_removed_on_request(
    device: SshTransport, place: Installation
) -> None:
    old, new = another_bundle(), build_bundle()
    for bundle in (old, new):
        device.upload(bundle.data, place.payload(bundle), bundle.sha256)
    assert set(installed_payloads(device, place)) == {place.payload(old), place.payload(new)}
    assert remove_payloads(device, place, keep=new) == [place.payload(old)]
    assert installed_payloads(device, place) == [place.payload(new)]
    unfinished = Path(place.payload(old) + ".0123456789abcdef.part")  # of a version that never arrived
    unfinished.write_bytes(b"half")
    assert remove_payloads(device, place) == [place.payload(new)]
    assert installed_payloads(device, place) == []
    assert not unfinished.exists()


@pytest.mark.parametrize("left", [b"", b"half", None])
def test_a_payload_that_a_power_cut_emptied_is_uploaded_again(
    server: SshServer, place: Installation, left: bytes | None
) -> None:
    bundle = build_bundle()
    payload = Path(place.payload(bundle))
    payload.parent.mkdir(parents=True)
    payload.write_bytes(bundle.data + b"more" if left is None else left)
    with CountingTransport(server.target()) as device:
        with start_agent(device, bundle, place) as channel:
            assert len(AgentSession(channel).ping(1)) == 1
        assert device.uploads == 1
    assert payload.read_bytes() == bundle.data


def test_cleaning_removes_a_damaged_payload(device: SshTransport, place: Installation) -> None:
    bundle = build_bundle()
    payload = Path(place.payload(bundle))
    device.upload(bundle.data, str(payload), bundle.sha256)
    assert remove_payloads(device, place, keep=bundle) == []
    for damaged in (b"", bytes(len(bundle.data)), bundle.data + b"more"):
        payload.write_bytes(damaged)
        assert remove_payloads(device, place, keep=bundle) == [str(payload)]
        assert not payload.exists()


def test_a_chatty_login_shell_is_named(tmp_path: Path, sshd: str, place: Installation) -> None:
    chatty = 'ForceCommand echo Welcome; eval "$SSH_ORIGINAL_COMMAND"'
    with (
        ssh_server(tmp_path / "chatty", sshd, chatty) as server,
        SshTransport(server.target()) as device,
        pytest.raises(DeviceError, match="printed b'Welcome' before the agent") as caught,
    ):
        start_agent(device, build_bundle(), place)
    assert "start-up files" in caught.value.hint


def test_a_missing_python_is_said_plainly(device: SshTransport, place: Installation) -> None:
    absent = dataclasses.replace(place, python="python9.9")
    with pytest.raises(DeviceError, match=r"no python9\.9 on the device") as caught:
        examine(device, absent)
    assert "Termux" in caught.value.hint


@pytest.mark.parametrize("python", ["python9.9", "/nowhere/bin/python3"])
def test_an_agent_without_its_python_cannot_be_started(
    device: SshTransport, place: Installation, python: str
) -> None:
    with pytest.raises(DeviceError, match=r"no .*python.* on the device") as caught:
        start_agent(device, build_bundle(), dataclasses.replace(place, python=python))
    assert not caught.value.transient


OLD_PYTHON = """#!/bin/sh
exec {python} -c '
import runpy, sys
sys.version_info = (3, 8, 18, "final", 0)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
' "$@"
"""


def test_an_old_python_on_the_device_is_named(
    device: SshTransport, place: Installation, tmp_path: Path
) -> None:
    """The interpreter claims to be an old one; what it reads first is what an old one would understand."""
    python = tmp_path / "python3"
    python.write_text(OLD_PYTHON.format(python=sys.executable))
    python.chmod(0o755)
    with (
        start_agent(device, build_bundle(), dataclasses.replace(place, python=str(python))) as channel,
        pytest.raises(DeviceError, match=r"Python 3\.8\.18 is too old") as caught,
    ):
        AgentSession(channel)
    assert not caught.value.transient
    assert "3.9" in caught.value.hint
    ast.parse(ENTRY, feature_version=(3, 4))
    assert 'f"' not in ENTRY


def test_a_device_that_answers_nonsense(device: SshTransport, place: Installation) -> None:
    with pytest.raises(DeviceError, match="did not report properly"):
        examine(device, dataclasses.replace(place, python="cat"))


def test_examine_reports_this_machine(device: SshTransport, place: Installation) -> None:
    report = examine(device, place)
    assert report.version == tuple(sys.version_info[:3])
    assert report.modules["numpy"] is not None
    assert not report.termux
    assert problems(report, ["onnxruntime", "torch"]) == []


def report(**changes: object) -> DeviceReport:
    fields = {
        "python": "/usr/bin/python3", "version": (3, 11, 2), "machine": "aarch64", "system": "Linux",
        "modules": {"numpy": None, "torch": None, "onnxruntime": None}, "venv": True, "home": "/home/pi",
        "free_bytes": 10**10, "termux": False, "wake_lock": False, "cpus": 4,
    }  # fmt: skip
    return DeviceReport.model_validate({**fields, **changes})


def test_what_is_missing_is_named_with_its_cure() -> None:
    (problem,) = problems(report(), ["onnxruntime"])
    assert problem.what == "missing: numpy, onnxruntime"
    assert "--install" in problem.fix
    (problem,) = problems(report(), ["torch", "onnxruntime"])
    assert problem.what == "missing: numpy, torch, onnxruntime"
    (old, _) = problems(report(version=(3, 7, 3)), ["numpy"])
    assert old.what == "Python 3.7.3 is too old"
    assert any(not p.fatal and "MB free" in p.what for p in problems(report(free_bytes=10**6), ["numpy"]))


@pytest.mark.parametrize(
    ("machine", "backend", "no_wheel", "others"),
    [
        ("armv7l", "onnxruntime", "onnxruntime", "numpy"),
        ("armv6l", "torch", "torch", "numpy"),
        ("riscv64", "onnxruntime", "onnxruntime", "numpy"),
        ("i686", "torch", "torch", "numpy"),
        ("armv7l", "numpy", "", "numpy"),
        ("aarch64", "torch", "", "numpy, torch"),
        ("x86_64", "onnxruntime", "", "numpy, onnxruntime"),
    ],
)
def test_a_machine_without_wheels_is_told_before_anything_is_tried(
    machine: str, backend: Backend, no_wheel: str, others: str
) -> None:
    found = problems(report(machine=machine), [backend])
    said = [f"missing: {no_wheel}, and there is no wheel for {machine}"] * bool(no_wheel)
    assert [problem.what for problem in found] == [*said, f"missing: {others}"]
    assert all(problem.fatal for problem in found)
    assert all(problem.installable for problem in found) is not bool(no_wheel)
    assert not no_wheel or "--backend numpy" in found[0].fix


def test_what_is_installed_by_hand_needs_no_wheel() -> None:
    modules = {"numpy": "2.0", "torch": None, "onnxruntime": "1.20"}
    assert problems(report(machine="riscv64", modules=modules), ["onnxruntime"]) == []


CRASHES = {
    "on import": (
        "onnxruntime",
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        r"importing onnxruntime failed \(killed by SIGSEGV\)",
    ),
    "not there": ("onnxruntime", "import not_there_at_all", "No module named 'not_there_at_all'"),
    "at the first step": (
        "onnxruntime",
        "import os, signal\ndef __getattr__(name): os.kill(os.getpid(), signal.SIGILL)",
        r"ended unexpectedly \(killed by SIGILL\)",
    ),
    "by an exit": (
        "numpy",
        "import sys; sys.stderr.write('bad CPU'); sys.exit(3)",
        r"\(exit status 3\): bad CPU",
    ),
}


@pytest.mark.parametrize("crash", CRASHES)
def test_a_backend_that_crashes_is_found_when_it_is_tried(
    device: SshTransport, tmp_path: Path, crash: str
) -> None:
    backend, module, said = CRASHES[crash]
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / f"{backend}.py").write_text(module)
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}/broken" exec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    place = Installation(state=f"{tmp_path}/state", python=str(wrapper))
    with pytest.raises(DeviceError, match=said) as caught:
        try_backend(device, place, backend, tmp_path / "graphs")
    assert caught.value.hint


@pytest.mark.parametrize("backend", ["numpy", "torch", "onnxruntime"])
def test_a_backend_that_works_trains_one_step(device: SshTransport, tmp_path: Path, backend: Backend) -> None:
    place = Installation(state=f"{tmp_path}/state", python=sys.executable)
    assert try_backend(device, place, backend, tmp_path / "graphs") == f"{backend} trains"
    assert not list((tmp_path / "state" / "jobs").iterdir())


def test_termux_is_recognised_and_gets_its_own_advice(tmp_path: Path, sshd: str, place: Installation) -> None:
    """The quirk that identifies Termux is its PREFIX; the server sets it as Termux's own does."""
    quirk = "SetEnv PREFIX=/data/data/com.termux/files/usr"
    with ssh_server(tmp_path / "termux", sshd, quirk) as server, SshTransport(server.target()) as device:
        found = examine(device, place)
    assert found.termux
    modules = {"numpy": None, "onnxruntime": None}
    advice = problems(found.model_copy(update={"modules": modules}), ["onnxruntime"])
    assert "pkg install python-numpy python-onnxruntime" in advice[0].fix
    assert "proot" in advice[0].fix
    assert any("termux-wake-lock" in p.what and not p.fatal for p in advice)


def test_a_failed_installation_says_what_failed(place: Installation, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    with pytest.raises(DeviceError, match="-m venv"):
        install_environment(LocalTransport(), place, ["numpy"])


def joulefleet(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "harness", *arguments], capture_output=True, text=True)


def test_trust_prepare_and_ping_from_the_command_line(server: SshServer, tmp_path: Path) -> None:
    inventory = tmp_path / "devices.toml"
    inventory.write_text(
        f'[devices.pi]\nhost = "127.0.0.1"\nport = {server.port}\nkey = "{server.folder}/client"\n'
        f'python = "{sys.executable}"\nstate = "{tmp_path}/state"\n'
    )
    options = ("--inventory", str(inventory), "pi")
    refused = joulefleet("bench", "ping", *options)
    assert refused.returncode == 4
    assert "its host key is not known" in refused.stdout + refused.stderr
    trusted = joulefleet("bench", "trust", *options, "--yes", "--json")
    assert json.loads(trusted.stdout)["fingerprint"].startswith("SHA256:")
    assert (tmp_path / "devices.known_hosts").exists()
    pinged = json.loads(joulefleet("bench", "ping", *options, "--json").stdout)
    assert 0 < pinged["round_trip_min_ms"] <= pinged["round_trip_median_ms"]
    prepared = joulefleet("bench", "prepare", *options)
    assert prepared.returncode == 0
    assert "ready for onnxruntime" in prepared.stdout
    assert (
        joulefleet("bench", "ping", "--inventory", str(inventory), "pie").stderr.count("did you mean 'pi'?")
        == 1
    )


def test_trust_asks_before_it_pins(server: SshServer, tmp_path: Path) -> None:
    inventory = tmp_path / "devices.toml"
    inventory.write_text(f'[devices.pi]\nhost = "127.0.0.1"\nport = {server.port}\n')
    command = [sys.executable, "-m", "harness", "bench", "trust", "--inventory", str(inventory), "pi"]
    done = subprocess.run(command, input="n\n", capture_output=True, text=True)
    assert done.returncode == 130
    assert "SHA256:" in done.stderr
    assert not (tmp_path / "devices.known_hosts").exists()
