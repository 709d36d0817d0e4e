"""How a meter is named on the command line: by its device in the inventory, or by its own options."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from harness.cli.frame import inventory_option
from harness.inventory import load_inventory
from joulefleet.config import validate
from joulefleet.errors import ConfigError
from power import MeterConfig

out_option = click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="New folder for the result; nothing is ever overwritten.",
)

_LIMITS = {"voltage_v": "--voltage", "voltage_max_v": "--voltage-max", "current_limit_a": "--current-limit"}

_OPTIONS = (
    click.option("--device", help="The meter of this device in the inventory."),
    inventory_option("Where --device is looked up."),
    click.option("--kind", help="Or: a kind of meter, see `joulefleet meter list`; then the options below."),
    click.option("--port", help="Serial port, or folder of a recording to replay; empty to search."),
    click.option("--serial", help="Serial number; another instrument is refused."),
    click.option("--voltage", "voltage_v", type=float, help="Voltage that the connected device expects."),
    click.option("--voltage-max", "voltage_max_v", type=float, help="Highest voltage that may ever be set."),
    click.option(
        "--current-limit", "current_limit_a", type=float, help="Highest current the device may draw."
    ),
    click.option("--channel", type=click.Choice(["main", "usb", "aux"]), help="Channel that is read."),
    click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="Option of the driver."),
)
_OWN = ("kind", "port", "serial", "voltage_v", "voltage_max_v", "current_limit_a", "channel")


def with_meter(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that name a meter; it receives ``config``."""

    @functools.wraps(function)
    def command(*, device: str | None, inventory: Path, options: tuple[str, ...], **values: Any) -> Any:
        own = {key: value for key in _OWN if (value := values.pop(key)) is not None}
        if options:
            own["options"] = dict(_key_value(text) for text in options)
        config = _from_inventory(device, inventory, own) if device else _from_options(own)
        return function(config=config, **values)

    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _from_inventory(device: str, path: Path, own: dict[str, Any]) -> MeterConfig:
    if own:
        raise click.UsageError("--device takes its meter from the inventory: leave the other options out")
    meter = load_inventory(path).meter_of(device)
    if meter is None:
        raise ConfigError(f"{path}: device {device!r} has no meter", hint=f"add [devices.{device}.meter]")
    return meter


def _from_options(own: dict[str, Any]) -> MeterConfig:
    if "kind" not in own:
        raise click.UsageError("which meter? Give --device, or --kind with its options")
    missing = [flag for key, flag in _LIMITS.items() if key not in own]
    if missing:
        raise click.UsageError(
            f"{', '.join(missing)}: mandatory, because only you know what the connected device stands"
        )
    return validate(own, MeterConfig, name="the meter's options")


def _key_value(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.UsageError(f"--option {text!r}: not KEY=VALUE")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value
