"""``devices.toml``: where the devices and their meters are. How they are driven is not its business."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from device_agents import Installation
from joulefleet.config import ClosedModel, load_toml
from joulefleet.errors import ConfigError
from power import MeterConfig
from power.profile import Battery

if TYPE_CHECKING:
    from device_agents import SshTarget
    from device_agents.transport import HostKey, Transport


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


class DeviceLimits(ClosedModel):
    """What a device must not exceed, whatever a plan allows.

    Attributes:
        temperature_max_c: The device ends its job when one of its sensors is hotter.
        battery_min_level: The device ends its job when its battery is lower, 0 to 1.
    """

    temperature_max_c: float | None = Field(default=None, ge=-100, le=200)
    battery_min_level: float | None = Field(default=None, ge=0, le=1)


class Device(Login):
    """One phone or board.

    Attributes:
        transport: ``ssh``, or ``local`` for a process on this machine.
        jump: Log in here first and go on from there.
        python: Interpreter on the device.
        state: Folder on the device for payloads, cached data and journals.
        meter: The instrument that feeds or watches this device.
        shared_meter: Or the name of one under ``[meters]``, which then serves one device at a time.
        limits: Temperature and battery at which the device has to stop.
        battery: Its capacity and charging power, for profiles.
        product: What it is, e.g. ``Pixel 5``; asked from the device where it is left out.
        facts: Further facts that a reader of its profiles should know, e.g. ``soc``.
    """

    transport: Literal["ssh", "local"] = "ssh"
    jump: Login | None = None
    python: str = "python3"
    state: str = Field(default=".joulefleet", min_length=1)
    meter: MeterConfig | None = None
    shared_meter: str = ""
    limits: DeviceLimits = DeviceLimits()
    battery: Battery | None = None
    product: str = Field(default="", max_length=100)
    facts: dict[str, str] = Field(default_factory=dict, max_length=32)

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.transport == "ssh" and not self.host:
            raise ValueError("transport 'ssh' needs a host")
        if self.meter is not None and self.shared_meter:
            raise ValueError("either a meter of its own or a shared_meter, not both")
        return self


DeviceName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,31}$")]
"""Device names become part of folder names, where an underscore separates parts."""


class Inventory(ClosedModel):
    """All devices by name, and the meters that several of them share."""

    devices: dict[DeviceName, Device] = Field(min_length=1)
    meters: dict[str, MeterConfig] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _shared_meters_exist(self) -> Self:
        for name, device in self.devices.items():
            if device.shared_meter and device.shared_meter not in self.meters:
                near = nearest(device.shared_meter, self.meters)
                raise ValueError(f"devices.{name}.shared_meter: no meter {device.shared_meter!r}; {near}")
        return self

    def device(self, name: str) -> Device:
        """One device by name.

        Raises:
            ConfigError: There is none; says which one may have been meant.
        """
        if name not in self.devices:
            raise ConfigError(f"no device {name!r} in the inventory", hint=nearest(name, self.devices))
        return self.devices[name]

    def meter_of(self, name: str) -> MeterConfig | None:
        """The instrument of a device, its own or a shared one."""
        device = self.device(name)
        return self.meters[device.shared_meter] if device.shared_meter else device.meter

    def meter_key(self, name: str) -> str:
        """What two devices have in common that cannot be measured at the same time; empty without a meter."""
        device, meter = self.device(name), self.meter_of(name)
        if meter is None:
            return ""
        # Of the instrument, not of its entry: one under [meters] may also be written as a device's own. One
        # that is named by neither serial number nor port, nor shared by name, is the only one of its kind.
        return f"{meter.kind}:{meter.serial or meter.port or device.shared_meter}"

    def require_places(self, names: Iterable[str]) -> None:
        """Refuse devices that are to work at the same time in one folder: its lock lets one job run.

        Raises:
            ConfigError: Two are the same login and folder.
        """
        by_place: dict[tuple[object, ...], str] = {}
        for name in names:
            device = self.device(name)
            jump = device.jump and device.jump.model_dump_json()
            place = (device.transport, device.host, device.port, device.user, jump, device.state)
            other = by_place.setdefault(place, name)
            if other != name:
                raise ConfigError(
                    f"{other} and {name} share the folder {device.state}, where one job runs at a time",
                    hint=f'give one a folder of its own: `state = ".joulefleet-{name}"` in its entry',
                )


def nearest(name: str, known: Iterable[str]) -> str:
    """What to try instead of an unknown name."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    return (f"did you mean {near[0]!r}? " if near else "") + f"known: {', '.join(names) or 'none'}"


def load_inventory(path: Path) -> Inventory:
    """Read ``devices.toml``."""
    return load_toml(path, Inventory)


def find_device(path: Path, name: str) -> Device:
    """One device of an inventory, by name."""
    return load_inventory(path).device(name)


def known_hosts_file(inventory: Path) -> Path:
    """The pinned host keys of an inventory lie beside it."""
    return inventory.with_suffix(".known_hosts")


def connect(device: Device, inventory: Path) -> Transport:
    """Open the way to a device."""
    if device.transport == "local":
        from device_agents.transport import LocalTransport

        return LocalTransport()
    from device_agents import SshTransport

    return SshTransport(ssh_target(device, inventory))


def fetch_device_key(device: Device, inventory: Path) -> HostKey:
    """The host key that a device shows, asked for on the same way on which it is connected to."""
    from device_agents import SshTransport
    from device_agents.transport import fetch_host_key

    if device.jump is None:
        return fetch_host_key(device.host, device.port)
    with SshTransport(ssh_target(device.jump, inventory)) as gateway:
        return fetch_host_key(device.host, device.port, via=gateway.forward(device.host, device.port))


def ssh_target(login: Login, inventory: Path) -> SshTarget:
    """A login as the SSH transport takes it."""
    from device_agents import SshTarget

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
    """Where joulefleet's things are on a device; a local one's folder is in the user's home."""
    state = device.state
    if device.transport == "local" and not Path(state).is_absolute():
        state = str(Path.home() / state)
    return Installation(state=state, python=device.python)
