"""``devices.toml``: where the devices and their meters are. How they are driven is not its business."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from device_agents.deploy import Installation
from fedjoule.config import ClosedModel, load_toml
from fedjoule.errors import ConfigError
from power.meter import MeterConfig

if TYPE_CHECKING:
    from device_agents.transport import Transport
    from device_agents.transport.ssh import SshTarget


class Login(ClosedModel):
    """Where an SSH server is and how to log in.

    Attributes:
        host: Name or address.
        port: SSH port; Termux listens on 8022.
        user: Login name; empty for the current user's.
        key: Private key file; without one, the SSH agent's keys and the usual ones are tried.
        password_env: Name of an environment variable with the password. A password never stands in a file.
    """

    host: str = ""
    port: int = Field(default=22, ge=1, le=65535)
    user: str = ""
    key: Path | None = None
    password_env: str = Field(default="", pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$")


class Device(Login):
    """One phone or board.

    Attributes:
        transport: ``ssh``, or ``local`` for a process on this machine.
        jump: Log in here first and go on from there.
        python: Interpreter on the device.
        state: Folder on the device for payloads, cached data and journals.
        meter: The instrument that feeds or watches this device.
    """

    transport: Literal["ssh", "local"] = "ssh"
    jump: Login | None = None
    python: str = "python3"
    state: str = Field(default=".fedjoule", min_length=1)
    meter: MeterConfig | None = None

    @model_validator(mode="after")
    def _ssh_has_host(self) -> Self:
        if self.transport == "ssh" and not self.host:
            raise ValueError("transport 'ssh' needs a host")
        return self


class Inventory(ClosedModel):
    """All devices by name."""

    devices: dict[str, Device] = Field(min_length=1)


def load_inventory(path: Path) -> Inventory:
    """Read ``devices.toml``."""
    return load_toml(path, Inventory)


def find_device(path: Path, name: str) -> Device:
    """One device of an inventory, by name."""
    devices = load_inventory(path).devices
    if name not in devices:
        near = difflib.get_close_matches(name, devices, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"{path}: no device {name!r}", hint=f"{hint}known: {', '.join(devices)}")
    return devices[name]


def known_hosts_file(inventory: Path) -> Path:
    """The pinned host keys of an inventory lie beside it."""
    return inventory.with_suffix(".known_hosts")


def connect(device: Device, inventory: Path) -> Transport:
    """Open the way to a device."""
    if device.transport == "local":
        from device_agents.transport import LocalTransport

        return LocalTransport()
    from device_agents.transport.ssh import SshTransport

    return SshTransport(ssh_target(device, inventory))


def ssh_target(login: Login, inventory: Path) -> SshTarget:
    """A login as the SSH transport takes it."""
    from device_agents.transport.ssh import SshTarget

    jump = login.jump if isinstance(login, Device) else None
    return SshTarget(
        host=login.host,
        port=login.port,
        user=login.user,
        key=login.key,
        password_env=login.password_env,
        known_hosts=known_hosts_file(inventory),
        jump=None if jump is None else ssh_target(jump, inventory),
    )


def installation(device: Device) -> Installation:
    """Where fedjoule's things are on a device; a local one's folder is in the user's home."""
    state = device.state
    if device.transport == "local" and not Path(state).is_absolute():
        state = str(Path.home() / state)
    return Installation(state=state, python=device.python)
