"""The bench's commands beside ``run``: what is connected, the first inventory, the live view."""

import contextlib
import getpass
import io
import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from device_agents.session.agent_session import Ping
from device_agents.transport.host_keys import fetch_host_key, known_keys, trust
from harness.bench.job.live_status import StatusBoard
from harness.bench.live_check import DeviceAnswer, MeterAnswer, missing_cables
from harness.bench_run.job_threads import JobOutcomes
from harness.cli import run as joulefleet
from harness.cli.bench.live import Eta, clock, table
from harness.inventory import load_inventory
from joulefleet.errors import DeviceError, DeviceUnreachable, MeterNotFound
from joulefleet.runstore import RunStore
from power.emulated.options import EmulatorOptions
from power.emulated.service import EmulatorProcess
from tests.device_agents.netns import host
from tests.device_agents.ssh_server import SshServer, ssh_server

# Meters are recorded in real time: such tests run one after the other, not against each other.
pytestmark = pytest.mark.xdist_group("bench")

Ask = Callable[..., Any]


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str]) -> Ask:
    """Run the command line in this process and give what ``--json`` says."""

    def run(*arguments: str, code: int = 0) -> Any:
        capfd.readouterr()
        returned = joulefleet(["bench", *arguments, "--json"])
        out, err = capfd.readouterr()
        assert returned == code, out + err
        return json.loads(out)

    return run


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, sshd: str) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("sshd"), sshd) as running:
        yield running


def inventory_of(folder: Path, server: SshServer, meter_port: str, ssh_port: int | None = None) -> str:
    path = folder / "devices.toml"
    path.write_text(
        f"""
[devices.pi]
host = "{server.host}"
port = {ssh_port or server.port}
user = "{getpass.getuser()}"
key = "{server.folder}/client"
python = "{sys.executable}"
state = "{folder}/state"

[devices.pi.meter]
kind = "monsoon-lvpm"
port = "{meter_port}"
voltage_v = 4
voltage_max_v = 4.2
current_limit_a = 3
"""
    )
    known_hosts = path.with_suffix(".known_hosts")
    if not known_hosts.exists():
        trust(known_hosts, server.host, server.port, fetch_host_key(server.host, server.port))
    return str(path)


def test_ping_shows_the_device_and_live_watts(tmp_path: Path, server: SshServer, ask: Ask) -> None:
    options = EmulatorOptions(signal="constant:current=0.4,voltage=4.0", serial="321")
    with EmulatorProcess("monsoon-lvpm", options) as instrument:
        inventory = inventory_of(tmp_path, server, instrument.address)
        said = ask("ping", "--inventory", inventory, "pi")
        assert joulefleet(["bench", "ping", "--inventory", inventory, "pi"]) == 0
    assert said["round_trip_min_ms"] > 0
    assert said["meter"]["power_w"] == pytest.approx(1.6, rel=0.01)
    assert (said["meter"]["serial"], said["meter"]["origin"]) == ("321", "emulated")
    assert said["missing"] == []


def test_ping_names_the_cable_that_is_missing(tmp_path: Path, server: SshServer, ask: Ask) -> None:
    said = ask("ping", "--inventory", inventory_of(tmp_path, server, "/dev/pts/none"), "pi", code=5)
    assert "data cable" in said["missing"][0]
    assert "no such port" in said["meter"]["error"]
    with EmulatorProcess("monsoon-lvpm", EmulatorOptions(signal="constant:current=0.0")) as instrument:
        said = ask("ping", "--inventory", inventory_of(tmp_path, server, instrument.address), "pi")
        assert "not through this meter" in said["missing"][0]
        said = ask("ping", "--inventory", inventory_of(tmp_path, server, instrument.address, 1), "pi", code=4)
        assert "output is off" in said["missing"][0]


def test_a_device_behind_a_jump_host_is_trusted_through_it(tmp_path: Path, sshd: str, ask: Ask) -> None:
    """Its address is local to the gateway's network; in ours, another machine answers there."""
    with (
        host() as far,
        ssh_server(tmp_path / "gate", sshd, host=far) as gate,
        ssh_server(tmp_path / "device", sshd, "ListenAddress 127.0.0.1", host=far) as device,
        ssh_server(tmp_path / "stranger", sshd, f"Port {device.port}"),
    ):
        inventory = tmp_path / "devices.toml"
        inventory.write_text(
            f"""
[devices.far]
host = "127.0.0.1"
port = {device.port}
key = "{device.folder}/client"
python = "{sys.executable}"
state = "{tmp_path}/state"
jump = {{host = "{gate.host}", port = {gate.port}, key = "{gate.folder}/client"}}
"""
        )
        command = [sys.executable, "-m", "harness", "bench", "trust", "--inventory", str(inventory), "far"]
        known_hosts = inventory.with_suffix(".known_hosts")
        refused = subprocess.run(command, input="n\n", capture_output=True, text=True)
        assert refused.returncode == 130
        assert not known_hosts.exists()
        subprocess.run(command, input="y\ny\n", text=True, check=True)
        assert known_keys(known_hosts, gate.host, gate.port)
        (pinned,) = known_keys(known_hosts, "127.0.0.1", device.port).values()
        assert pinned == fetch_host_key(device.host, device.port)
        said = ask("trust", "--inventory", str(inventory), "far")  # nothing new: nothing is asked
        assert said["fingerprint"] == pinned.fingerprint
        assert ask("ping", "--inventory", str(inventory), "far")["round_trip_min_ms"] > 0


def test_ping_of_a_mistyped_address(tmp_path: Path, ask: Ask) -> None:
    inventory = tmp_path / "devices.toml"
    inventory.write_text('[devices.pi]\nhost = "192.168.1..5"\n')
    said = ask("ping", "--inventory", str(inventory), "pi", code=4)
    assert "no such host" in said["error"]["message"]


def test_ping_survives_what_nobody_expected(
    tmp_path: Path, server: SshServer, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    inventory = inventory_of(tmp_path, server, "/dev/pts/none")
    monkeypatch.setattr("harness.bench.live_check.open_meter", broken)
    said = ask("ping", "--inventory", inventory, "pi", code=5)
    assert said["meter"]["error"] == "unexpected ZeroDivisionError: a bug"
    monkeypatch.setattr("harness.bench.live_check.connect", broken)
    said = ask("ping", "--inventory", inventory, "pi", code=4)
    assert said["error"] == "unexpected ZeroDivisionError: a bug"
    assert "-v" in said["hint"]


HERE = DeviceAnswer(pings=(Ping(0, 1, 2),))
GONE = DeviceAnswer(error=DeviceUnreachable("x"))
REFUSED = DeviceAnswer(error=DeviceError("no key"))
FLOWS = MeterAnswer(power_w=1.0, current_a=0.3, floor_a=0.01, after_s=0.1)
NOTHING = MeterAnswer(power_w=0.0, current_a=0.001, floor_a=0.01, after_s=0.1)


@pytest.mark.parametrize(
    ("device", "meter", "words"),
    [
        (HERE, FLOWS, ""),
        (REFUSED, FLOWS, ""),
        (HERE, None, ""),
        (HERE, MeterAnswer(error=MeterNotFound("x")), "data cable"),
        (HERE, MeterAnswer(), "sends no samples"),
        (HERE, NOTHING, "not through this meter"),
        (GONE, FLOWS, "the network"),
        (GONE, NOTHING, "supply cable"),
    ],
)
def test_what_is_missing(device: DeviceAnswer, meter: MeterAnswer | None, words: str) -> None:
    found = missing_cables(device, meter)
    assert (words in found[0]) if words else found == []


FAKE_PYTHON = """#!/bin/sh
echo "$@" >> {folder}/called
case "$1 $2" in
"-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
"-m pip") ;;
"- ") echo '{report}' ;;
*) exec "{real}" "$@" ;;
esac
"""


@pytest.mark.parametrize(
    ("changes", "code", "installs"),
    [
        ({"modules": {"numpy": None}}, 0, True),
        ({"modules": {"numpy": None}, "version": (3, 7, 3)}, 4, False),
        ({"version": (3, 7, 3)}, 4, False),
        ({"free_bytes": 10**6}, 0, False),
        ({}, 0, False),
    ],
)
def test_prepare_installs_only_what_cures(
    tmp_path: Path, ask: Ask, changes: dict[str, Any], code: int, installs: bool
) -> None:
    report = {
        "python": "python3", "version": (3, 11, 2), "machine": "aarch64", "system": "Linux", "venv": True,
        "modules": {"numpy": "2.0"}, "home": "/root", "free_bytes": 10**10, "termux": False,
        "wake_lock": False,
    }  # fmt: skip
    python, inventory = tmp_path / "python", tmp_path / "devices.toml"
    told = json.dumps({**report, **changes})
    python.write_text(FAKE_PYTHON.format(folder=tmp_path, report=told, real=sys.executable))
    python.chmod(0o755)
    inventory.write_text(
        f'[devices.here]\ntransport = "local"\npython = "{python}"\nstate = "{tmp_path}/state"\n'
    )
    options = ("--backend", "numpy", "--install", "--inventory", str(inventory), "here")
    said = ask("prepare", *options, code=code)
    called = (tmp_path / "called").read_text()
    assert ("-m pip install" in called) == ("-m venv" in called) == installs
    assert said["environment"] == (f"{tmp_path}/state/venv/bin/python" if installs else "")
    assert said["tried"] == ([] if code else ["numpy trains"])


def test_one_environment_holds_what_all_backends_need(tmp_path: Path, ask: Ask) -> None:
    """A device has one `python`: a second environment would be the end of the first."""
    report = {
        "python": "python3", "version": (3, 11, 2), "machine": "aarch64", "system": "Linux", "venv": True,
        "modules": {}, "home": "/root", "free_bytes": 10**10, "termux": False, "wake_lock": False,
    }  # fmt: skip
    python, inventory = tmp_path / "python", tmp_path / "devices.toml"
    told = json.dumps(report)
    python.write_text(FAKE_PYTHON.format(folder=tmp_path, report=told, real=sys.executable))
    python.chmod(0o755)
    text = f'[devices.here]\ntransport = "local"\npython = "{{}}"\nstate = "{tmp_path}/state"\n'
    inventory.write_text(text.format(python))
    both = ("--backend", "torch", "--backend", "onnxruntime", "--install", "--inventory", str(inventory))
    said = ask("prepare", *both, "here")
    assert said["tried"] == ["torch trains", "onnxruntime trains"]
    made = said["environment"]
    assert made == f"{tmp_path}/state/venv/bin/python"
    assert "-m pip install --quiet numpy torch onnxruntime\n" in (tmp_path / "called").read_text()
    inventory.write_text(text.format(made))  # as it was told: from now on it is added to, not made again
    assert ask("prepare", *both, "here")["environment"] == made
    assert (tmp_path / "called").read_text().count("-m venv") == 1


def test_cleaning_empties_the_cache_of_a_device(tmp_path: Path, ask: Ask) -> None:
    inventory, cache = tmp_path / "devices.toml", tmp_path / "state" / "cache"
    inventory.write_text(
        f'[devices.here]\ntransport = "local"\npython = "{sys.executable}"\nstate = "{tmp_path}/state"\n'
    )
    cache.mkdir(parents=True)
    (cache / ("0" * 64)).write_bytes(b"a shard")
    (cache / "1.77.part").write_bytes(b"half a shard")
    said = ask("prepare", "--backend", "numpy", "--clean", "--inventory", str(inventory), "here")
    assert said["cache_cleared"] is True
    assert list(cache.iterdir()) == []


LIMITS = ["--voltage", "5", "--voltage-max", "5.1", "--current-limit", "2"]


def test_init_from_options(tmp_path: Path, ask: Ask) -> None:
    out = tmp_path / "devices.toml"
    said = ask("init", "--out", str(out), "--device", "pi", "--host", "pi.local", "--user", 'p"i',
               "--meter", "ina219", "--meter-port", "/dev/ttyUSB0", *LIMITS)  # fmt: skip
    assert said["devices"] == ["pi"]
    device = load_inventory(out).devices["pi"]
    assert (device.host, device.user, device.meter.port) == ("pi.local", 'p"i', "/dev/ttyUSB0")
    assert device.meter.voltage_max_v == 5.1
    before = out.read_bytes()
    refused = ask("init", "--out", str(out), "--device", "x", "--host", "x", "--meter", "none", code=3)
    assert "not overwritten" in refused["error"]["message"]
    assert out.read_bytes() == before


def test_init_adds_the_next_device(tmp_path: Path, ask: Ask) -> None:
    out = tmp_path / "devices.toml"
    written = "# mine\n[devices.pi]\nhost = 'pi.local'   # by the window"  # no newline at its end
    out.write_text(written)
    add = ("init", "--out", str(out), "--add")
    said = ask(*add, "--device", "phone", "--host", "10.0.0.7", "--meter", "ina219", *LIMITS)
    assert said["devices"] == ["phone"]
    assert out.read_text().startswith(written + "\n")
    assert {name: one.host for name, one in load_inventory(out).devices.items()} == {
        "pi": "pi.local",
        "phone": "10.0.0.7",
    }
    before = out.read_bytes()
    twice = ask(*add, "--device", "phone", "--host", "x", "--meter", "none", code=3)
    assert "phone is listed already" in twice["error"]["message"]
    out.write_text("[devices.pi]\nhots = 'x'\n")
    ask(*add, "--device", "new", "--host", "x", "--meter", "none", code=3)  # what stands there is wrong
    assert out.read_text() == "[devices.pi]\nhots = 'x'\n"
    assert b"phone" in before


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--device", "pi", "--meter", "none"], 2, "--host is missing"),
        (["--device", "pi", "--host", "x"], 2, "--meter is missing"),
        (["--device", "pi", "--host", "x", "--meter", "ina21", *LIMITS], 3, "no power meter called 'ina21'"),
        (["--device", "pi", "--host", "x", "--meter", "ina219"], 2, "--voltage is missing"),
        (["--device", "p i", "--host", "x", "--meter", "none"], 3, "p i"),
        (["--device", "pi", "--host", "x", "--meter", "ina219", *LIMITS[:3], "4", *LIMITS[4:]], 3, "above"),
    ],
)
def test_init_refuses_bad_answers(
    tmp_path: Path, ask: Ask, options: list[str], code: int, message: str
) -> None:
    out = tmp_path / "devices.toml"
    assert message in ask("init", "--out", str(out), *options, code=code)["error"]["message"]
    assert not out.exists()


def test_init_asks(tmp_path: Path) -> None:
    out = tmp_path / "devices.toml"
    answers = ["my phone", "phone", "ssh", "192.168.1.4", "8022", "u0", "", "python3",
               "monsoon-lvpm", "", "321", "4.2", "4.35", "3",
               "y", "phone", "here", "local", "python3", "none", "n"]  # fmt: skip
    command = [sys.executable, "-m", "harness", "bench", "init", "--out", str(out)]
    done = subprocess.run(command, input="\n".join(answers) + "\n", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    devices = load_inventory(out).devices
    assert (devices["phone"].port, devices["phone"].meter.serial) == (8022, "321")
    assert devices["here"].transport == "local"
    assert devices["here"].meter is None
    assert "bench trust phone" in done.stdout
    # A name that cannot be is asked for again at once, not refused after all answers.
    assert "at most 31 letters" in done.stderr
    assert "phone is listed already" in done.stderr


def test_init_says_that_there_is_nothing_to_add_to(tmp_path: Path, ask: Ask) -> None:
    add = ("init", "--out", str(tmp_path / "devices.toml"), "--add")
    refused = ask(*add, "--device", "x", "--host", "x", "--meter", "none", code=3)
    assert "without --add" in refused["error"]["hint"]


def test_schema_is_printed(ask: Ask) -> None:
    assert ask("schema", "plan")["title"] == "Plan"


def test_the_live_table_shows_every_device() -> None:
    board = StatusBoard(("alpha", "beta"))
    board.set("alpha", job="0001_alpha_x_rep1", attempt=2, stage="idle_before", epoch=0)
    board.set("alpha", power_w=1.2345, temperature_c=41.26)
    board.set("alpha", stage="round", phase="epoch", epoch=2)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table(board.snapshot(), "1 of 4 jobs finished", 5))
    shown = console.export_text()
    for word in ("alpha", "beta", "(attempt 2)", "round: epoch", "2/5", "1.234", "41.3", "1 of 4"):
        assert word in shown
    board.clear("alpha")
    assert board.snapshot()[0].job == ""
    assert board.snapshot()[0].temperature_c == 41.26
    assert "last failure" not in shown


def test_the_live_table_shows_why_an_attempt_failed_until_one_succeeds() -> None:
    board = StatusBoard(("alpha", "beta"))
    board.set("alpha", failure="round: the agent ended unexpectedly (killed by SIGSEGV)")
    board.clear("alpha")  # its job is over; the next one has not begun
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table(board.snapshot(), "0 of 4 jobs finished", 5))
    shown = console.export_text()
    assert "last failure" in shown
    assert "killed by SIGSEGV" in shown
    board.set("beta", failure="verify: " + "a gap longer than 0.05 s lies inside; " * 40)
    narrow = Console(width=100, record=True, file=io.StringIO())
    narrow.print(table(board.snapshot(), "0 of 4 jobs finished", 5))
    assert len(narrow.export_text().splitlines()) < 12  # the devices stay on the screen


def test_time_left_is_judged_by_the_pace_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = SimpleNamespace(outcomes=JobOutcomes(), jobs=range(4), queue=SimpleNamespace(left=4))
    now_s = [100.0]
    monkeypatch.setattr("harness.cli.bench.live.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    eta = Eta(runner)  # type: ignore[arg-type]
    assert eta.text(stopping=False) == "0 of 4 jobs finished"
    runner.outcomes.finished["a"] = Path()
    runner.queue.left = 3
    now_s[0] = 160.0
    assert eta.text(stopping=False) == "1 of 4 jobs finished, 3:00 left at this pace"
    runner.outcomes.failed["b"] = "x"
    assert "1 failed" in eta.text(stopping=True)
    assert "stopping" in eta.text(stopping=True)
    assert clock(3723.4) == "1:02:03"


def on_terminal(command: list[str]) -> tuple[int, str]:
    """Run a command whose standard error is a terminal; what it showed there."""
    ours, theirs = pty.openpty()
    shown = bytearray()

    def read() -> None:
        while True:
            try:
                data = os.read(ours, 65_536)
            except OSError:  # what Linux says when the other side is closed
                return
            if not data:
                return
            shown.extend(data)

    process = subprocess.Popen(
        command, stderr=theirs, stdout=subprocess.DEVNULL, env={**os.environ, "COLUMNS": "200"}
    )
    os.close(theirs)
    reader = threading.Thread(target=read)
    reader.start()
    code = process.wait(timeout=120)
    reader.join()
    os.close(ours)
    return code, shown.decode("utf-8", "replace")


@contextlib.contextmanager
def one_job(folder: Path, server: SshServer) -> Iterator[list[str]]:
    """The command that runs a plan of a single job."""
    (folder / "plan.toml").write_text(
        'models = ["softmax"]\nbackends = ["numpy"]\nlocal_epochs = 2\nsamples = 60000\nwarmup_epochs = 0\n'
        "quiet = false\nsync_pattern = false\n[repetitions]\ncount = 1\n"
        "[timing]\nidle_s = 1.0\nsettle_s = 0\ndecision_wait_s = 0.6\n[retry]\nattempts = 5\nwait_s = 0.1\n"
    )
    options = EmulatorOptions(signal="constant:current=0.4,voltage=4.0")
    with EmulatorProcess("monsoon-lvpm", options) as instrument:
        inventory = inventory_of(folder, server, instrument.address)
        yield [sys.executable, "-m", "harness", "bench", "run", str(folder / "plan.toml"),
               "--inventory", inventory, "--root", str(folder / "runs")]  # fmt: skip


def test_a_run_on_a_terminal_is_watched_live(tmp_path: Path, server: SshServer) -> None:
    with one_job(tmp_path, server) as command:
        code, shown = on_terminal(command)
    assert code == 0, shown
    assert "idle before" in shown
    assert "round: wait" in shown
    assert "1.6" in shown  # watts
    assert "1 of 1 jobs finished" in shown


@pytest.mark.parametrize("channel", [os.pipe, pty.openpty])
def test_a_run_goes_on_when_nobody_can_read_about_it(
    tmp_path: Path, server: SshServer, channel: Callable[[], tuple[int, int]]
) -> None:
    """``bench run ... 2>&1 | tee log &``, and ``tee`` dies; or the terminal is closed."""
    ours, theirs = channel()
    with one_job(tmp_path, server) as command:
        process = subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL)
        os.close(theirs)
        try:
            assert os.read(ours, 4) == b"run:"
            os.close(ours)
            assert process.wait(timeout=240) == 0
        finally:
            process.kill()
            process.wait()
    (run,) = RunStore(tmp_path / "runs").list()
    assert run.state == "complete"
