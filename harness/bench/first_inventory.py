"""A first ``devices.toml``, made from answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.inventory import Inventory
from joulefleet.config import parse_toml
from joulefleet.errors import ConfigError
from joulefleet.records import write_atomic

_HEAD = """# The devices of this bench and their meters. `joulefleet bench ping NAME` tries one.
# Unknown keys are errors, so a misspelt limit cannot pass unnoticed.
"""

_LIMITS_NOTE = "# Mandatory. Nothing is ever set above voltage_max_v, nor changed unless you ask for it."


@dataclass(frozen=True, slots=True)
class MeterAnswers:
    """What was answered about a meter. Port and serial number may be empty: then it is searched for."""

    kind: str
    port: str
    serial: str
    voltage_v: float
    voltage_max_v: float
    current_limit_a: float


@dataclass(frozen=True, slots=True)
class DeviceAnswers:
    """What was answered about a device."""

    name: str
    transport: str
    host: str
    port: int
    user: str
    key: str
    python: str
    meter: MeterAnswers | None


def inventory_text(devices: list[DeviceAnswers]) -> str:
    """The file.

    Raises:
        ConfigError: An answer is out of range.
    """
    text = _HEAD + "".join(_device(device) for device in devices)
    parse_toml(text, Inventory, name="the answers")
    return text


def _device(device: DeviceAnswers) -> str:
    lines: dict[str, object] = {"transport": "local", "python": device.python}
    if device.transport != "local":
        lines = {
            "host": device.host,
            "port": device.port,
            "user": device.user,
            "key": device.key,
            "python": device.python,
        }
    # Quoted, so that a bad name is refused as one and not as bad TOML.
    name = device.name if device.name.isalnum() and device.name.isascii() else json.dumps(device.name)
    text = f"\n[devices.{name}]\n" + _lines(lines)
    if device.meter is not None:
        meter = device.meter
        found = {"kind": meter.kind, "port": meter.port, "serial": meter.serial}
        limits = {
            "voltage_v": meter.voltage_v,
            "voltage_max_v": meter.voltage_max_v,
            "current_limit_a": meter.current_limit_a,
        }
        text += f"\n[devices.{name}.meter]\n{_lines(found)}{_LIMITS_NOTE}\n{_lines(limits)}"
    return text


def _lines(values: Mapping[str, object]) -> str:
    """One line per answer; empty ones are left out. A JSON string is also a TOML string."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items() if value != "")


def write_inventory(path: Path, devices: list[DeviceAnswers]) -> None:
    """Write the file; never over another one."""
    if path.exists():
        raise ConfigError(f"{path}: exists already, not overwritten", hint="edit it, or give another --out")
    write_atomic(path, inventory_text(devices).encode())
