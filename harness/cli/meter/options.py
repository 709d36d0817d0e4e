"""How a meter is named on the command line: by its device in the inventory, or by its own options."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import inventory_option
from harness.inventory import load_inventory
from joulefleet.config import validate
from joulefleet.errors import ConfigError
from power import MeterConfig
from power.calibrate import load_calibration

if TYPE_CHECKING:
    from power.meters import OutputSetting

out_option = click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="New folder for the result; nothing is ever overwritten.",
)


def calibration_option(text: str) -> Callable[[Any], Any]:
    """``--calibration FILE``."""
    return click.option("--calibration", type=click.Path(path_type=Path, dir_okay=False), help=text)


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
    calibration_option("Correct readings by this, instead of what the inventory says."),
)
_OWN = ("kind", "port", "serial", "voltage_v", "voltage_max_v", "current_limit_a", "channel")


def with_meter(function: Callable[..., Any], *, required: bool = True) -> Callable[..., Any]:
    """Give a command the options that name a meter; it receives ``config``, None if none is required."""

    @functools.wraps(function)
    def command(
        *,
        device: str | None,
        inventory: Path,
        options: tuple[str, ...],
        calibration: Path | None,
        **values: Any,
    ) -> Any:
        own = {key: value for key in _OWN if (value := values.pop(key)) is not None}
        if options:
            own["options"] = dict(_key_value(text) for text in options)
        if not required and not device and not own:
            return function(config=None, **values)
        config = _from_inventory(device, inventory, own) if device else _from_options(own)
        if calibration is not None:
            config = config.model_copy(update={"calibration": load_calibration(calibration)})
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


def output_data(setting: OutputSetting, config: MeterConfig) -> dict[str, Any]:
    """What an output is set to, beside what the connected device stands."""
    return {
        "on": setting.on,
        "voltage_v": setting.voltage_v,
        "run_time_limit_a": setting.limits.run_time_a,
        "power_up_limit_a": setting.limits.power_up_a,
        "voltage_max_v": config.voltage_max_v,
        "current_limit_a": config.current_limit_a,
        "above_voltage_max_v": setting.voltage_v > config.voltage_max_v,
    }


def output_line(output: dict[str, Any]) -> str:
    """The same for a person."""
    above = f", above voltage_max_v {output['voltage_max_v']:g}" if output["above_voltage_max_v"] else ""
    return (
        f"output {'on' if output['on'] else 'off'}, set to {output['voltage_v']:.3f} V{above};"
        f" cut at {output['run_time_limit_a']:.3f} A, at power-up at {output['power_up_limit_a']:.3f} A"
        f" (the device: at most {output['voltage_max_v']:g} V and {output['current_limit_a']:g} A)"
    )
