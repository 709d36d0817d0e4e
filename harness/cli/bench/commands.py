"""``joulefleet bench``: devices on the bench, and the runs on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.bench.compare import check, compare
from harness.cli.bench.federate import federate
from harness.cli.bench.files import init, schema
from harness.cli.bench.run import run
from harness.cli.bench.status import ping, show, status
from harness.cli.frame import Group, Output, inventory_option
from harness.cli.terminal import echo
from joulefleet.errors import EXIT_DEVICE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from device_agents import Backend, Installation, Transport
    from device_agents.deploy import Problem
    from device_agents.transport import HostKey
    from harness.inventory import Login

_inventory = inventory_option()


@click.group("bench", cls=Group)
def bench() -> None:
    """Devices on the bench: init, trust, prepare, ping; plans: run, status, show; rounds: federate.

    Before and after: compare, check.
    """


for _command in (check, compare, federate, init, ping, run, schema, show, status):
    bench.add_command(_command)


@bench.command("trust")
@_inventory
@click.argument("device")
@click.option("--yes", is_flag=True, help="Pin the key without asking; for keys that were compared before.")
@click.option("--replace", is_flag=True, help="Replace a key that is pinned already.")
def trust(inventory: Path, device: str, yes: bool, replace: bool) -> Output:
    """Show a device's host key and pin it, after you compared the fingerprint with the device's own.

    A jump host on the way comes first: only through it is the key that answers the device's.
    """
    from device_agents.transport import fetch_host_key
    from harness.inventory import fetch_device_key, find_device, known_hosts_file
    from joulefleet.errors import ConfigError

    login = find_device(inventory, device)
    if login.transport != "ssh":
        raise ConfigError(f"{device}: a local device has no host key")
    path = known_hosts_file(inventory)
    jump = login.jump
    if jump is not None:
        key = fetch_host_key(jump.host, jump.port)
        _pin(path, f"the jump host of {device}", jump, key, yes=yes, replace=replace)
    key = fetch_device_key(login, inventory)
    name = _pin(path, device, login, key, yes=yes, replace=replace)
    data = {"device": device, "host": name, "fingerprint": key.fingerprint, "known_hosts": str(path)}
    return Output(data, f"pinned in {path}")


def _pin(path: Path, what: str, login: Login, key: HostKey, *, yes: bool, replace: bool) -> str:
    """Show a server's key, and pin it if it is what the person sees there; returns the server's name."""
    from device_agents.transport import host_name, known_keys, trust

    name = host_name(login.host, login.port)
    echo(f"{what} ({name}) shows {key.kind} {key.fingerprint}", err=True)
    if key in known_keys(path, login.host, login.port).values():
        return name  # as that of a gateway is for the second device behind it
    if not yes:
        echo(f"On {what}: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub (Termux: under $PREFIX)", err=True)
        click.confirm("Is that the same fingerprint?", abort=True, err=True)
    trust(path, login.host, login.port, key, replace=replace)
    return name


@bench.command("prepare")
@_inventory
@click.argument("device")
@click.option(
    "--backend",
    "backends",
    type=click.Choice(["numpy", "torch", "onnxruntime"]),
    multiple=True,
    default=["onnxruntime"],
    show_default=True,
    help="What is to train there; give it twice for two.",
)
@click.option(
    "--install",
    is_flag=True,
    help="Make a virtual environment on the device with what is missing, and train one step with it.",
)
@click.option(
    "--clean", is_flag=True, help="Remove old versions of the agent and its cached data from the device."
)
def prepare(inventory: Path, device: str, backends: Any, install: bool, clean: bool) -> Output:
    """Say what a device lacks to run the agent; installs nothing unless asked."""
    from device_agents import build_bundle
    from device_agents.deploy import clear_cache, examine, install_environment, problems, remove_payloads
    from harness.inventory import connect, find_device, installation

    login = find_device(inventory, device)
    place = installation(login)
    with connect(login, inventory) as transport:
        report = examine(transport, place)
        found = problems(report, backends)
        fatal = [p for p in found if p.fatal]
        # An environment is no cure for anything else, such as the Python that it is made of.
        agent_runs = all(p.installable for p in fatal)
        made = install_environment(transport, place, backends) if install and fatal and agent_runs else ""
        place = replace(place, python=made or place.python)
        tried, crashed = _try(transport, place, backends) if install and agent_runs else ([], [])
        removed = remove_payloads(transport, place, keep=build_bundle()) if clean else []
        cleared = clean and agent_runs
        if cleared:
            clear_cache(transport, build_bundle(), place)

    version = ".".join(map(str, report.version))
    lines = [f"{device}: {report.system} {report.machine}, Python {version}"]
    lines += [line for p in [*found, *crashed] for line in (f"  {p.what}", f"    fix: {p.fix}")]
    if made:
        lines.append(
            f'  made an environment; put `python = "{made}"` under [devices.{device}] in {inventory}'
        )
    lines += [f"  {one}" for one in tried]
    if removed:
        lines.append(f"  removed {len(removed)} old versions of the agent")
    if cleared:
        lines.append("  removed its cached data")
    if not found and not crashed:
        lines.append(f"  ready for {' and '.join(backends)}")
    data = {
        "device": device,
        "report": report.model_dump(mode="json"),
        "problems": [p.model_dump() for p in [*found, *crashed]],
        "tried": tried,
        "environment": made,
        "removed": removed,
        "cache_cleared": cleared,
    }
    return Output(data, lines, exit_code=EXIT_DEVICE if crashed or (fatal and not made) else 0)


def _try(
    transport: Transport, place: Installation, backends: Iterable[Backend]
) -> tuple[list[str], list[Problem]]:
    """Train one step with every backend: what worked, and what did not."""
    from device_agents.deploy import Problem
    from harness.bench.job.trial import try_backend
    from joulefleet.errors import DeviceError

    tried, crashed = [], []
    for backend in backends:
        try:
            tried.append(try_backend(transport, place, backend))
        except DeviceError as error:
            what = f"{backend} was tried and does not train: {error.message}"
            crashed.append(Problem(what=what, fix=error.hint or "see its messages (agent.log)"))
    return tried, crashed
