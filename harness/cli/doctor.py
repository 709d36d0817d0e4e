"""``joulefleet doctor``: what works on this machine, why the rest does not, and how to fix it.

Each check says ok, warn or fail; none of them raises.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from harness.cli.frame import Command, Output
from harness.cli.terminal import style
from joulefleet.errors import EXIT_FAILED, ConfigError, DeviceError, JoulefleetError
from joulefleet.install_hint import install_hint

if TYPE_CHECKING:
    from harness.bench.live_check import DeviceAnswer, MeterAnswer
    from harness.inventory import Inventory

Verdict = Literal["ok", "warn", "fail"]

EXTRAS = {
    "train": ("torch", "torchvision", "onnx", "onnxscript", "onnxruntime", "scikit-learn", "gymnasium"),
    "monsoon": ("libusb1", "libusb-package"),
    "scale": ("ray",),
    "plots": ("matplotlib",),
    "tracking": ("tensorboard",),
    "lab": ("starlette", "uvicorn"),
}
BASE = ("numpy", "scipy", "pandas", "pyarrow", "pydantic", "click", "rich", "jinja2", "paramiko", "pyserial")
MIN_FREE_GB = 2.0
MOST_AT_ONCE = 16
PINGS = 3
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command("doctor", cls=Command)
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings too.")
@click.option(
    "--inventory",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also try every device of a devices.toml and its meter, as `joulefleet bench ping` does.",
)
@click.option(
    "--runs", type=click.Path(path_type=Path), default=Path("runs"), help="Where runs are to be stored."
)
def doctor(strict: bool, inventory: Path | None, runs: Path) -> Output:
    """Check this machine: what works, why not, how to fix it."""
    checks = examine(inventory, runs)
    bad = [c for c in checks if c.verdict == "fail" or (strict and c.verdict == "warn")]
    lines = []
    for check in checks:
        verdict = style(f"{check.verdict:<4}", fg=_COLOURS[check.verdict])
        lines.append(f"{verdict} {check.name}: {check.found}")
        if check.why:
            lines += [f"       why: {check.why}", f"       fix: {check.fix}"]
    return Output([asdict(check) for check in checks], lines, exit_code=EXIT_FAILED if bad else 0)


@dataclass(frozen=True, slots=True)
class Check:
    """One answer.

    Attributes:
        name: What was looked at.
        verdict: ``ok``, ``warn`` (works with less) or ``fail``.
        found: What was seen.
        why: Why it matters; empty when ok.
        fix: What to do; empty when ok.
    """

    name: str
    verdict: Verdict
    found: str
    why: str = ""
    fix: str = ""


def examine(inventory: Path | None = None, runs: Path = Path("runs")) -> list[Check]:
    """Every check, in the order a person would ask."""
    probes: list[tuple[str, Callable[[], Iterator[Check]]]] = [
        ("python", check_python),
        ("packages", check_packages),
        ("import origin", check_origin),
        ("serial ports", check_serial_ports),
        ("usb", check_usb),
        ("clock", check_clock),
        ("disk", lambda: check_disk(runs)),
    ]
    if inventory is not None:
        probes.append(("inventory", lambda: check_inventory(inventory)))
    return [check for name, probe in probes for check in _guarded(name, probe)]


def _guarded(name: str, probe: Callable[[], Iterator[Check]]) -> list[Check]:
    """A check that fails itself is a finding about this machine, not a crash."""
    try:
        return list(probe())
    except Exception as error:
        return [
            Check(
                name,
                "fail",
                f"{type(error).__name__}: {error}",
                why="the check itself failed",
                fix="run `joulefleet doctor -v` and report what it prints",
            )
        ]


def check_python() -> Iterator[Check]:
    """Virtual environment; pip itself refuses a Python that is too old."""
    found = f"{platform.python_version()} at {sys.executable}"
    if sys.prefix == sys.base_prefix:
        yield Check(
            "python",
            "warn",
            found + ", no virtual environment",
            "other packages may be called `power` or `traces` too",
            f"python3.11 -m venv .venv && . .venv/bin/activate; then {install_hint('all')}",
        )
    else:
        yield Check("python", "ok", found)


def check_packages() -> Iterator[Check]:
    """What is installed of the base and of each extra."""
    yield _installed("base", BASE, "fail", "nothing works without them", install_hint())
    for extra, names in EXTRAS.items():
        yield _installed(f"extra {extra}", names, "warn", "its commands will refuse", install_hint(extra))


def _installed(what: str, names: Sequence[str], verdict: Verdict, why: str, fix: str) -> Check:
    missing = [name for name in names if _version(name) is None]
    if missing:
        return Check(what, verdict, f"missing: {', '.join(missing)}", why, fix)
    return Check(what, "ok", ", ".join(f"{name} {_version(name)}" for name in names))


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def check_origin() -> Iterator[Check]:
    """That our generic package names are not taken by somebody else's packages."""
    from joulefleet.shadowing import shadowed_packages

    shadowed = shadowed_packages()
    for name, place in shadowed.items():
        yield Check(
            f"import {name}", "fail", place, f"`import {name}` finds another package", f"pip uninstall {name}"
        )
    if not shadowed:
        yield Check("import origin", "ok", "all packages come from this joulefleet")


def check_serial_ports() -> Iterator[Check]:
    """Serial nodes that an instrument could be on, tried by opening them."""
    from power.meters import scan_ports

    ports = [port.path for port in scan_ports()]
    if not ports:
        yield Check(
            "serial ports",
            "warn",
            "none",
            "a Monsoon LVPM or an INA219 shows up as one",
            "plug it in, then run again",
        )
    for port in ports:
        yield _try_node(port, "sudo usermod -aG dialout $USER, then log in again")


def check_usb() -> Iterator[Check]:
    """USB access for a Monsoon HVPM: the library, and the device nodes of the vendor's id."""
    from power.meters import libusb_version

    try:
        yield Check("libusb", "ok", libusb_version())
    except JoulefleetError as error:
        yield Check("libusb", "warn", error.message, "needed only for an HVPM", error.hint)
    nodes = list(_usb_nodes("2ab9"))
    if not nodes:
        yield Check(
            "usb", "warn", "no Monsoon (2ab9:0001)", "needed only for an HVPM", "plug it in, then run again"
        )
    for node in nodes:
        yield _try_node(
            str(node), 'udev rule: SUBSYSTEM=="usb", ATTR{idVendor}=="2ab9", MODE="0666"; then replug it'
        )


def _usb_nodes(vendor: str) -> Iterator[Path]:
    for device in sorted(Path("/sys/bus/usb/devices").glob("*/idVendor")):
        if device.read_text().strip() == vendor:
            bus = int((device.parent / "busnum").read_text())
            number = int((device.parent / "devnum").read_text())
            yield Path(f"/dev/bus/usb/{bus:03}/{number:03}")


def _try_node(path: str, fix: str) -> Check:
    """Open a device node for reading and writing, without waiting and without taking it over."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError as error:
        return Check(path, "fail", error.strerror or str(error), "it cannot be opened by this user", fix)
    return Check(path, "ok", "can be opened")


def check_clock() -> Iterator[Check]:
    """Resolution of the monotonic clock that every sample is stamped with."""
    info = time.get_clock_info("monotonic")
    found = f"monotonic, resolution {info.resolution * 1e9:.0f} ns"
    if not info.monotonic or info.resolution > 1e-5:
        yield Check(
            "clock", "warn", found, "sample times will be coarse", "use another machine for measuring"
        )
    else:
        yield Check("clock", "ok", found)


def check_disk(runs: Path) -> Iterator[Check]:
    """Space and write access where runs go."""
    place = next(folder for folder in (runs.absolute(), *runs.absolute().parents) if folder.exists())
    free_gb = shutil.disk_usage(place).free / 1e9
    found = f"{free_gb:.1f} GB free at {place}"
    if not os.access(place, os.W_OK):
        yield Check(
            "disk", "fail", f"{place} is not writable", "runs cannot be stored", "choose another with --root"
        )
    elif free_gb < MIN_FREE_GB:
        yield Check("disk", "warn", found, "an hour of 5 kHz power data takes 0.5 GB", "free some space")
    else:
        yield Check("disk", "ok", found)


def check_inventory(path: Path) -> Iterator[Check]:
    """Every device with its agent, and every meter; those that share a meter one after the other."""
    from harness.inventory import load_inventory

    try:
        inventory = load_inventory(path)
    except ConfigError as error:
        yield Check(
            "inventory", "fail", error.message, "the file is not usable", error.hint or "correct the file"
        )
        return
    sharing: dict[str, list[str]] = {}
    for name in inventory.devices:
        own = inventory.meter_of(name) is None
        sharing.setdefault(name if own else inventory.meter_key(name), []).append(name)
    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        tried = pool.map(
            lambda names: [(name, _try_both(name, inventory, path)) for name in names], sharing.values()
        )
        found = dict(pair for group in tried for pair in group)
    for name in inventory.devices:
        yield from found[name]


def _try_both(name: str, inventory: Inventory, path: Path) -> list[Check]:
    """A device and its meter at the same time; what they cannot tell, the cables do."""
    from harness.bench.live_check import check_both, missing_cables

    device = inventory.device(name)
    if device.transport == "ssh" and device.jump is None:
        reached = _try_ssh(name, device.host, device.port)
        if reached.verdict == "fail" and inventory.meter_of(name) is None:
            return [reached]
    said, meter = check_both(device, path, inventory.meter_of(name), PINGS)
    cables = "; ".join(missing_cables(said, meter))
    checks = [_device_check(name, said)]
    if meter is not None:
        checks.append(_meter_check(name, meter, cables))
    return checks


def _device_check(name: str, said: DeviceAnswer) -> Check:
    if said.error is not None or said.hello is None:
        error = said.error or DeviceError("no answer")
        fix = error.hint or "start its SSH server (Termux: `sshd`, port 8022), check address and network"
        return Check(f"device {name}", "fail", error.message, "nothing can run on it", fix)
    shortest_ms = min(p.received_ns - p.sent_ns for p in said.pings) * 1e-6
    python = said.hello.python
    return Check(f"device {name}", "ok", f"its agent answers in {shortest_ms:.3g} ms, Python {python}")


def _meter_check(name: str, meter: MeterAnswer, cables: str) -> Check:
    what = f"meter of {name}"
    if meter.error is not None:
        fix = meter.error.hint or cables or "`joulefleet meter scan`"
        return Check(what, "fail", meter.error.message, "nothing can be measured with it", fix)
    found = f"{meter.kind} {meter.serial}{', emulated' if meter.emulated else ''}"
    if meter.power_w is None:
        return Check(what, "fail", f"{found}: no samples", "nothing can be measured with it", cables)
    found += f": {meter.power_w:.3f} W at {meter.voltage_v:.2f} V"
    if cables:
        return Check(what, "warn", found, "it may not be what the device draws", f"check {cables}")
    return Check(what, "ok", found)


def _try_ssh(name: str, host: str, port: int) -> Check:
    try:
        with socket.create_connection((host, port), timeout=5) as connection:
            connection.settimeout(5)
            banner = connection.recv(255).decode("ascii", "replace").strip()
    except OSError as error:
        return Check(
            f"device {name}",
            "fail",
            f"{host}:{port}: {error.strerror or error}",
            "the device cannot be reached",
            "start its SSH server (Termux: `sshd`, port 8022), check address and network",
        )
    if not banner.startswith("SSH-2.0"):
        found = f"{host}:{port} answers {banner[:40]!r}"
        return Check(f"device {name}", "fail", found, "that is no SSH server", "check the port")
    return Check(f"device {name}", "ok", f"{host}:{port} {banner[:40]}")
