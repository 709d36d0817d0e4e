"""Whether a device can run the agent: what it has, what is missing, and what would install it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from pydantic import Field, ValidationError

from device_agents.deploy.bundle import MIN_PYTHON
from device_agents.deploy.install import Installation, no_python
from device_agents.job import Backend
from device_agents.transport.base import Transport
from joulefleet.config import ClosedModel
from joulefleet.errors import DeviceError

NEEDS: dict[str, tuple[str, ...]] = {
    "numpy": ("numpy",),
    "torch": ("numpy", "torch"),
    "onnxruntime": ("numpy", "onnxruntime"),
}
MIN_FREE_BYTES = 200_000_000
"""Payload, a data shard and journals take a few megabytes; a virtual environment with onnxruntime 150 MB."""

WHEELS = {"torch": ("x86_64", "aarch64"), "onnxruntime": ("x86_64", "aarch64")}
"""Machines for which their makers publish a wheel for Linux. Elsewhere pip would try for an hour to build one
from source, or find nothing."""

PIP_TIMEOUT_S = 1800.0


class DeviceReport(ClosedModel):
    """What the device says about itself (untrusted, hence bounded)."""

    python: str = Field(max_length=4096)
    version: tuple[int, int, int]
    machine: str = Field(max_length=64)
    system: str = Field(max_length=64)
    modules: dict[str, str | None] = Field(max_length=16)
    venv: bool
    home: str = Field(max_length=4096)
    free_bytes: int | None = Field(default=None, ge=0)
    termux: bool
    wake_lock: bool
    cpus: int | None = Field(default=None, ge=1, le=4096)


class Problem(ClosedModel):
    """Something that keeps the agent from running well, and what to do on the device.

    Attributes:
        fatal: It cannot run at all.
        installable: `install_environment` cures it.
    """

    what: str
    fix: str
    fatal: bool = True
    installable: bool = False


def examine(transport: Transport, installation: Installation) -> DeviceReport:
    """Ask the device what it has; installs nothing.

    Raises:
        DeviceError: There is no Python, or its answer is nonsense.
    """
    script = files("device_agents.payload").joinpath("readiness_report.py").read_bytes()
    done = transport.run([installation.python, "-"], stdin=script)
    if done.returncode == 127:
        raise no_python(transport.address, installation.python)
    try:
        return DeviceReport.model_validate_json(done.stdout)
    except ValidationError:
        raise DeviceError(
            f"{transport.address}: {installation.python} did not report properly (exit {done.returncode}): "
            f"{done.message or done.stdout[:80]!r}"
        ) from None


def problems(report: DeviceReport, backends: Sequence[Backend]) -> list[Problem]:
    """What is missing for some backends."""
    found = []
    if report.version[:2] < MIN_PYTHON:
        have = ".".join(map(str, report.version))
        found.append(Problem(what=f"Python {have} is too old", fix="install Python 3.9 or newer"))
    missing = [name for name in needs(backends) if report.modules.get(name) is None]
    nowhere = [name for name in missing if not _has_wheel(name, report)]
    if nowhere:
        names = " and ".join(nowhere)
        found.append(
            Problem(
                what=f"missing: {names}, and there is no wheel for {report.machine}",
                fix="`--backend numpy` needs none (it trains softmax); or a 64-bit system on this device, if "
                f"its processor can (a Raspberry Pi from model 3 on); or build {names} yourself",
            )
        )
    missing = [name for name in missing if name not in nowhere]
    if missing:
        fix = _install_hint(report, missing)
        found.append(Problem(what=f"missing: {', '.join(missing)}", fix=fix, installable=True))
    if report.free_bytes is not None and report.free_bytes < MIN_FREE_BYTES:
        megabytes = report.free_bytes // 1_000_000
        found.append(
            Problem(what=f"only {megabytes} MB free in {report.home}", fix="free some space", fatal=False)
        )
    if report.termux and not report.wake_lock:
        found.append(
            Problem(
                what="no termux-wake-lock: Android may freeze the agent when the screen is off",
                fix="`pkg install termux-tools`",
                fatal=False,
            )
        )
    return found


def _has_wheel(package: str, report: DeviceReport) -> bool:
    """Whether pip can find the package; Termux has its own packages, other systems are not known."""
    known = WHEELS.get(package)
    return known is None or report.termux or report.system != "Linux" or report.machine in known


def _install_hint(report: DeviceReport, missing: list[str]) -> str:
    if report.termux:
        packages = " ".join(f"python-{name}" for name in missing)
        return (
            f"Termux has no wheels: `pkg install {packages}`; where there is no such package, "
            "a Debian in proot (docs/lab/phone-on-monsoon.md)"
        )
    return (
        f"`joulefleet bench prepare DEVICE --install` makes a virtual environment with {', '.join(missing)}"
    )


def needs(backends: Sequence[Backend]) -> list[str]:
    """The packages that some backends need, each once."""
    return list(dict.fromkeys(package for backend in backends for package in NEEDS[backend]))


def install_environment(transport: Transport, installation: Installation, backends: Sequence[Backend]) -> str:
    """Make a virtual environment on the device with what the backends need. Only ever called when asked.

    A device runs one interpreter, so there is one environment: if that is in use already, it is added to.

    Returns:
        The interpreter of the environment.

    Raises:
        DeviceError: The device cannot make one, or the installation failed.
    """
    folder = f"{installation.state}/venv"
    python = f"{folder}/bin/python"
    if installation.python != python:
        _must(transport, [installation.python, "-m", "venv", folder], 300.0)
    _must(transport, [python, "-m", "pip", "install", "--quiet", *needs(backends)], PIP_TIMEOUT_S)
    return python


def _must(transport: Transport, argv: list[str], timeout_s: float) -> None:
    done = transport.run(argv, timeout_s=timeout_s)
    if done.returncode:
        raise DeviceError(
            f"{transport.address}: `{' '.join(argv)}` failed: {done.message}",
            hint="run it on the device by hand and read what it says",
        )
