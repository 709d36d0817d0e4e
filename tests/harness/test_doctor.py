import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.cli import doctor
from power.emulated.options import EmulatorOptions
from power.emulated.service import EmulatorProcess


def verdicts(checks: list[doctor.Check]) -> dict[str, str]:
    return {check.name: check.verdict for check in checks}


def test_every_check_that_is_not_ok_says_why_and_how_to_fix(tmp_path: Path) -> None:
    checks = doctor.examine(runs=tmp_path)
    assert {"python", "base", "extra train", "import origin", "clock", "disk"} <= set(verdicts(checks))
    for check in checks:
        assert check.verdict == "ok" or (check.why and check.fix), check


def test_it_never_raises() -> None:
    def broken() -> None:
        raise RuntimeError("no such luck")

    (check,) = doctor._guarded("broken", broken)
    assert check.verdict == "fail"
    assert "no such luck" in check.found


def answer_once(banner: bytes) -> int:
    """A server that greets one client; returns its port."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server, server.accept()[0] as client:
            client.sendall(banner)

    threading.Thread(target=serve, daemon=True).start()
    return server.getsockname()[1]


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_devices_that_cannot_be_reached_are_named(tmp_path: Path) -> None:
    inventory = tmp_path / "devices.toml"
    ports = {"web": answer_once(b"HTTP/1.1 400\r\n"), "off": closed_port()}
    inventory.write_text(
        "".join(f'[devices.{name}]\nhost = "127.0.0.1"\nport = {port}\n' for name, port in ports.items())
    )
    found = list(doctor.check_inventory(inventory))
    assert verdicts(found) == {"device web": "fail", "device off": "fail"}
    assert "no SSH server" in found[0].why


def test_every_device_and_every_meter_is_tried(tmp_path: Path) -> None:
    """Two devices take turns at one meter, which is there; the third one's is not."""
    inventory = tmp_path / "devices.toml"
    limits = "voltage_v = 4.0\nvoltage_max_v = 4.2\ncurrent_limit_a = 3.0\n"
    options = EmulatorOptions(signal="constant:current=0.4,voltage=4.0", serial="77")
    with EmulatorProcess("monsoon-lvpm", options) as instrument:
        ports = {"first": instrument.address, "second": instrument.address, "third": str(tmp_path / "gone")}
        inventory.write_text(
            "".join(
                f'[devices.{name}]\ntransport = "local"\npython = "{sys.executable}"\n'
                f'state = "{tmp_path / name}"\n'
                f'[devices.{name}.meter]\nkind = "monsoon-lvpm"\nport = "{port}"\n{limits}'
                for name, port in ports.items()
            )
        )
        checks = {check.name: check for check in doctor.check_inventory(inventory)}
    assert {name: check.verdict for name, check in checks.items()} == {
        "device first": "ok",
        "meter of first": "ok",
        "device second": "ok",
        "meter of second": "ok",
        "device third": "ok",
        "meter of third": "fail",
    }
    assert "monsoon-lvpm 77, emulated: 1.6" in checks["meter of first"].found
    assert checks["meter of third"].fix


def test_a_wrong_inventory_is_a_failed_check(tmp_path: Path) -> None:
    inventory = tmp_path / "devices.toml"
    inventory.write_text('[devices.pi]\nhots = "pi"\n')
    (check,) = doctor.check_inventory(inventory)
    assert check.verdict == "fail"
    assert "did you mean 'host'?" in check.fix


def test_a_node_that_cannot_be_opened(tmp_path: Path) -> None:
    check = doctor._try_node(str(tmp_path / "ttyACM9"), "plug it in")
    assert (check.verdict, check.fix) == ("fail", "plug it in")


def test_strict_turns_warnings_into_an_exit_code(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "harness", "doctor", "--runs", str(tmp_path), "--json"]
    plain = subprocess.run(command, capture_output=True, text=True)
    strict = subprocess.run([*command, "--strict"], capture_output=True, text=True)
    found = {check["verdict"] for check in json.loads(plain.stdout)}
    assert plain.returncode == (1 if "fail" in found else 0)
    assert strict.returncode == (1 if found != {"ok"} else 0)


def test_a_missing_usb_library_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def libusb() -> doctor.Check:
        (check,) = [check for check in doctor.check_usb() if check.name == "libusb"]
        return check

    assert libusb().verdict == "ok"
    assert libusb().found.startswith("1.0.")
    monkeypatch.setattr("libusb_package.get_library_path", lambda: tmp_path / "libusb-1.0.so")
    assert libusb().verdict == "warn"
    assert "does not load" in libusb().found
    assert "apt install libusb-1.0-0" in libusb().fix
    monkeypatch.setitem(sys.modules, "usb1", None)
    assert libusb().verdict == "warn"
    assert ".[monsoon]" in libusb().fix
