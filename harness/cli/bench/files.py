"""``joulefleet bench init`` and ``bench schema``: the files that people write."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.frame import Command, Output
from harness.cli.terminal import echo

if TYPE_CHECKING:
    from joulefleet.config import ClosedModel

Answers = dict[str, Any]

SCHEMAS = {
    "plan": "harness.bench.plan:Plan",
    "devices": "harness.inventory:Inventory",
    "probing": "harness.probing.plan:ProbingPlan",
    "federate": "harness.federate.settings:FederateSettings",
    "scenario": "emulator.scenario.model:Scenario",
}
"""What people write, and the model of it; imported when asked for."""

_HEAD = """# The devices of this bench and their meters. `joulefleet bench ping NAME` tries one.
# Unknown keys are errors, so a misspelt limit cannot pass unnoticed.
"""

_LIMITS_NOTE = "# Mandatory. Nothing is ever set above voltage_max_v, nor changed unless you ask for it."

_file = click.Path(path_type=Path, dir_okay=False)


@click.command("init", cls=Command)
@click.option("--out", type=_file, default=Path("devices.toml"), show_default=True, help="Never overwritten.")
@click.option("--add", is_flag=True, help="Add to a file that exists; what stands in it is kept as it is.")
@click.option("--device", "name", help="Name of the device; without it everything is asked for.")
@click.option("--transport", type=click.Choice(["ssh", "local"]), default=None, help="Default: ssh.")
@click.option("--host", help="Name or address of the device.")
@click.option("--port", type=click.IntRange(1, 65535), help="SSH port; Termux listens on 8022. Default: 22.")
@click.option("--user", help="Login name.")
@click.option("--key", help="Private key file.")
@click.option("--python", help="Interpreter on the device. Default: python3.")
@click.option("--meter", "kind", help="Kind of its meter, see `joulefleet meter list`; 'none' for none.")
@click.option("--meter-port", help="Serial port of the meter; empty to search.")
@click.option("--meter-serial", help="Serial number of the meter; any other is refused.")
@click.option("--voltage", "voltage_v", type=float, help="Voltage that the device expects.")
@click.option("--voltage-max", "voltage_max_v", type=float, help="Highest voltage that may ever be set.")
@click.option("--current-limit", "current_limit_a", type=float, help="Highest current it may draw.")
def init(out: Path, add: bool, **given: Any) -> Output:
    """Write a first devices.toml from what you answer, or add to one; options answer in advance."""
    from harness.inventory import Inventory
    from joulefleet.config import parse_toml
    from joulefleet.errors import ConfigError
    from joulefleet.files import write_atomic

    if out.exists() and not add:
        raise ConfigError(
            f"{out}: exists already, not overwritten", hint="--add for the next device, or another --out"
        )
    if add and not out.exists():
        raise ConfigError(f"{out}: there is no such file to add to", hint="without --add it is written anew")
    before = _before(out) if add else _HEAD
    asking, taken = given["name"] is None, _names(before)
    devices = [_device(given, taken, asking=asking)]
    while asking and click.confirm("Another device?", default=False, err=True):
        taken.add(devices[-1][0])
        devices.append(_device(dict.fromkeys(given), taken, asking=True))
    names = [name for name, _ in devices]
    if names[0] in _names(before):  # given as an option, so never asked for
        raise ConfigError(f"{out}: {names[0]} is listed already", hint="give another name")
    file = before + "".join(_section(name, **answers) for name, answers in devices)
    parse_toml(file, Inventory, name=str(out) if add else "the answers")
    write_atomic(out, file.encode(), mode=0o600, replace=add)
    # Only a device over SSH has a host key.
    trust = "" if "host" not in devices[0][1] else f"`joulefleet bench trust {names[0]}`, then "
    text = [f"added to {out}" if add else f"wrote {out}", f"next: {trust}`joulefleet bench ping {names[0]}`"]
    return Output({"path": str(out), "devices": names}, text)


def _before(path: Path) -> str:
    """What stands in an inventory, which has to be right before anything is added."""
    from harness.inventory import load_inventory

    load_inventory(path)
    text = path.read_text(encoding="utf-8")
    return text if text.endswith("\n") else f"{text}\n"


def _names(text: str) -> set[str]:
    return set(tomllib.loads(text).get("devices", {}))


def _asker(given: Answers, *, asking: bool) -> Callable[..., Any]:
    """Answers given as options, else asked for, else a default."""

    def ask(key: str, question: str, default: Any = None, kind: Any = str) -> Any:
        value = given.get(key)
        if value is not None:
            return value
        if asking:
            return click.prompt(question, default=default, type=kind, err=True)
        if default is None:
            raise click.UsageError(f"--{_OPTIONS.get(key, key)} is missing")
        return default

    return ask


_OPTIONS = {"voltage_v": "voltage", "voltage_max_v": "voltage-max", "current_limit_a": "current-limit",
            "kind": "meter"}  # fmt: skip


def _new_name(taken: set[str]) -> Callable[[str], str]:
    """Reads the name of a device; a bad one is asked for again, before all the other questions."""
    from pydantic import TypeAdapter, ValidationError

    from harness.inventory import DeviceName

    def read(name: str) -> str:
        if name in taken:
            raise click.UsageError(f"{name} is listed already")
        try:
            TypeAdapter(DeviceName).validate_python(name)
        except ValidationError:
            raise click.UsageError("a letter or digit, then at most 31 letters, digits and '-'") from None
        return name

    return read


def _device(given: Answers, taken: set[str], *, asking: bool) -> tuple[str, Answers]:
    """A device's name, and what is answered about it and its meter."""
    ask = _asker(given, asking=asking)
    name = ask("name", "Name of the device (letters, digits, '-')", None, _new_name(taken))
    choice = click.Choice(["ssh", "local"])
    if ask("transport", "How is it reached? 'local' is this machine", "ssh", choice) == "ssh":
        reached = {
            "host": ask("host", "Its host name or address"),
            "port": ask("port", "Its SSH port (Termux: 8022)", 22, click.IntRange(1, 65535)),
            "user": ask("user", "Login name (empty: yours)", ""),
            "key": ask("key", "Private key file (empty: the usual ones)", ""),
        }
    else:
        reached = {"transport": "local"}
    python = ask("python", "Python on the device", "python3")
    return name, {**reached, "python": python, "meter": _meter(ask, asking=asking)}


def _meter(ask: Callable[..., Any], *, asking: bool) -> Answers | None:
    from power import METERS

    if asking:
        _show_instruments()
    known = [*METERS.entries(), "none"]
    kind = ask("kind", "Kind of its meter", None, click.Choice(known))
    if kind == "none":
        return None
    METERS.load(kind)  # an unknown kind given as an option is refused with the known ones
    return {
        "kind": kind,
        "port": ask("meter_port", "Serial port of the meter (empty: search)", ""),
        "serial": ask("meter_serial", "Serial number of the meter (empty: any)", ""),
        "voltage_v": ask("voltage_v", "Voltage that the device expects, volts", None, float),
        "voltage_max_v": ask("voltage_max_v", "Highest voltage that may ever be set, volts", None, float),
        "current_limit_a": ask("current_limit_a", "Highest current it may draw, amperes", None, float),
    }


def _section(name: str, meter: Answers | None, **device: Any) -> str:
    """A device in the file."""
    # Quoted, so that a bad name is refused as one and not as bad TOML.
    key = name if name.isalnum() and name.isascii() else json.dumps(name)
    text = f"\n[devices.{key}]\n{_lines(device)}"
    if meter is None:
        return text
    limits = {limit: meter[limit] for limit in ("voltage_v", "voltage_max_v", "current_limit_a")}
    found = {what: value for what, value in meter.items() if what not in limits}
    return f"{text}\n[devices.{key}.meter]\n{_lines(found)}{_LIMITS_NOTE}\n{_lines(limits)}"


def _lines(values: Answers) -> str:
    """One line per answer; empty ones are left out. A JSON string is also a TOML string."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items() if value != "")


def _show_instruments() -> None:
    """What is plugged in, as a help for the answers."""
    from power import scan_instruments

    found = scan_instruments()
    for instrument in found.instruments:
        what = instrument.kind or "unknown"
        echo(f"  found: {what} {instrument.port} {instrument.serial} {instrument.description}", err=True)


@click.command("schema", cls=Command)
@click.argument("which", type=click.Choice([*SCHEMAS]))
def schema(which: str) -> Output:
    """Print the JSON schema of a file that people write; docs/schemas holds the same."""
    return Output(json_schema(which))


def json_schema(which: str) -> dict[str, Any]:
    """JSON schema of one of `SCHEMAS`, for editors that complete and check."""
    module, _, name = SCHEMAS[which].partition(":")
    model: type[ClosedModel] = getattr(import_module(module), name)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}
