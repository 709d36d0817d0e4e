"""Getting the agent onto a device and starting it: uploaded once per content, one round trip after that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from device_agents.deploy.bundle import Bundle
from device_agents.session.agent_session import AgentSession
from device_agents.transport.base import Channel, Transport
from joulefleet.errors import DeviceError, DeviceUnreachable

START_TIMEOUT_S = 30.0

# Runs the payload if it is there, in one round trip; its first line tells what is. Arguments come as $1...,
# never inside the text. The size has to be right: a power cut may empty a file that has its name already.
_START = """
if ! command -v "$3" > /dev/null; then echo python; exit 69; fi
if [ -f "$1" ] && [ "$(wc -c < "$1")" -eq "$4" ]; then echo ready; else echo missing; exit 66; fi
JOULEFLEET_STATE="$2" exec "$3" "$1"
"""

_LIST = 'for f in "$1"/agent-*.pyz; do [ -f "$f" ] && echo "$f"; done; true'
_REMOVE = 'parts=$1; shift; rm -f -- "$@" "$parts"/*.part'


@dataclass(frozen=True, slots=True)
class Installation:
    """Where joulefleet's things are on a device.

    Attributes:
        state: Folder for payloads, cached data and journals; relative to the login folder.
        python: Interpreter that runs the agent.
    """

    state: str = ".joulefleet"
    python: str = "python3"

    def payload(self, bundle: Bundle) -> str:
        """Path of a payload."""
        return f"{self.state}/payloads/{bundle.name}"


def start_agent(
    transport: Transport,
    bundle: Bundle,
    installation: Installation,
    *,
    on_progress: Callable[[int], None] = lambda _: None,
) -> Channel:
    """Start the agent, uploading its payload first if the device does not have it.

    Raises:
        DeviceError: It cannot be started.
        DeviceUnreachable: The link is down.
    """
    channel = _try_start(transport, bundle, installation)
    if channel is None:
        transport.upload(bundle.data, installation.payload(bundle), bundle.sha256, on_progress=on_progress)
        channel = _try_start(transport, bundle, installation)
    if channel is None:
        raise DeviceError(
            f"{transport.address}: {installation.payload(bundle)} is not there although it was just uploaded",
            hint="do SSH and SFTP start in the same folder on this device?",
        )
    return channel


def _try_start(transport: Transport, bundle: Bundle, installation: Installation) -> Channel | None:
    arguments = (installation.payload(bundle), installation.state, installation.python, len(bundle.data))
    channel = transport.open(["sh", "-c", _START, "sh", *map(str, arguments)])
    try:
        word = channel.receive_line(START_TIMEOUT_S)
    except BaseException:
        channel.close()
        raise
    if word == b"ready":
        return channel
    channel.close()
    if word == b"missing":
        return None
    if word == b"python":
        raise no_python(transport.address, installation.python)
    raise DeviceError(
        f"{transport.address}: the login shell printed {word[:60]!r} before the agent",
        hint="its start-up files must not print for commands (guard them with `[ -t 1 ]`)",
    )


def no_python(address: str, python: str) -> DeviceError:
    """The interpreter that the inventory names is not on the device."""
    return DeviceError(
        f"{address}: no {python} on the device",
        hint="install Python 3.9 or newer (Debian: `apt install python3`, Termux: `pkg install python`)",
    )


def installed_payloads(transport: Transport, installation: Installation) -> list[str]:
    """Payloads on the device, all versions."""
    done = transport.run(["sh", "-c", _LIST, "sh", f"{installation.state}/payloads"])
    return done.stdout.decode("utf-8", "replace").split("\n")[:-1]


def remove_payloads(
    transport: Transport, installation: Installation, *, keep: Bundle | None = None
) -> list[str]:
    """Remove payloads, all or all but one, unless that is damaged, and what is left of cut uploads.

    Returns:
        The payloads removed.
    """
    kept = installation.payload(keep) if keep is not None and _is_whole(transport, installation, keep) else ""
    doomed = [path for path in installed_payloads(transport, installation) if path != kept]
    transport.run(["sh", "-c", _REMOVE, "sh", f"{installation.state}/payloads", *doomed])
    return doomed


def clear_cache(transport: Transport, bundle: Bundle, installation: Installation) -> None:
    """Remove the data and graphs that the agent keeps on the device; the next job sends them again.

    Raises:
        DeviceBusy: A job runs there, which may need them.
    """
    with start_agent(transport, bundle, installation) as channel:
        session = AgentSession(channel)
        session.require_free()
        session.clear_cache()


def _is_whole(transport: Transport, installation: Installation, bundle: Bundle) -> bool:
    """Whether a payload on the device is what was uploaded, byte for byte."""
    try:
        return transport.download(installation.payload(bundle), max_bytes=len(bundle.data)) == bundle.data
    except DeviceUnreachable:
        raise
    except DeviceError:
        return False  # missing, too large, or not to be read
