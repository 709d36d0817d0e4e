"""``devices.toml``: where the devices and their meters are. How they are driven is not its business."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from fedjoule.config import ClosedModel, load_toml
from power.meter import MeterConfig


class Device(ClosedModel):
    """One phone or board.

    Attributes:
        transport: ``ssh``, or ``local`` for a process on this machine.
        host: Name or address; needed for ssh.
        port: SSH port; Termux listens on 8022.
        user: Login name; empty for the current user's.
        meter: The instrument that feeds or watches this device.
    """

    transport: Literal["ssh", "local"] = "ssh"
    host: str = ""
    port: int = Field(default=22, ge=1, le=65535)
    user: str = ""
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
