"""Every error joulefleet raises on purpose, and the exit code each one ends the command with.

::

    JoulefleetError                 1   the run failed
    ├── StorageError              1   a directory or file could not be written or read back
    │   ├── StorageFull           1   transient: no space left; what was written stays readable
    │   └── DamagedEmulation      1   what is stored of one emulation; others of its run go on
    ├── MissingExtra              2   an optional dependency group is not installed
    ├── ConfigError               3   a file that people write is wrong
    ├── DeviceError               4   a phone or board
    │   ├── DeviceUnreachable     4   transient: the link, not the device's answer
    │   │   └── AgentDied         4   transient once: the link is up and the agent has ended; it says how
    │   ├── DeviceProtocolError   4   an agent of another version, or something that is no agent
    │   ├── DeviceFull            4   transient: no space left on the device; its journal stays readable
    │   ├── DeviceBusy            4   transient: a job runs there that is not this one
    │   └── CalledOff             4   a round that could not begin, because another device is not there
    ├── MeterError                5   a power instrument
    │   ├── MeterNotFound         5
    │   ├── MeterBusy             5   transient: another process holds the port
    │   ├── MeterDisconnected     5   transient: unplugged in the middle
    │   ├── MeterSilent           5   transient: there, but no data come, or not any more
    │   ├── MeterProtocolError    5   transient: bytes that do not parse
    │   └── UnsafeOutput          5   asked for a voltage or current that the inventory forbids
    ├── NobodyLeft                1   an emulated fleet in which no device is ever eligible again
    └── DataQualityError          6   evidence that must not become a number
        └── ProvenanceError       6   a claim stronger than its evidence

``Transient`` marks what a retry may cure; the retry policy reads the type, never the message.
"""

from __future__ import annotations

from joulefleet.printable import printable

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CONFIG = 3
EXIT_DEVICE = 4
EXIT_METER = 5
EXIT_DATA_QUALITY = 6
EXIT_INTERRUPTED = 130


class Transient:
    """Mixin: trying the same thing again may succeed."""


class JoulefleetError(Exception):
    """Base of all deliberate errors.

    Args:
        message: One sentence: what went wrong, and where.
        hint: What the user can try; shown after the message.

    Examples:
        >>> try:
        ...     open_run("nowhere")
        ... except JoulefleetError as error:
        ...     print(error.message, error.hint)
    """

    exit_code = EXIT_FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        # Much of it was said by devices, files and other people's libraries.
        message, hint = printable(message, keep="\n"), printable(hint, keep="\n")
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(hint)  # tracebacks, as in a notebook, show it

    def __reduce__(self) -> tuple[object, ...]:
        # The default would call cls(message) and drop the hint when a worker process raises.
        return (_rebuild, (type(self), self.message, self.hint))

    @property
    def transient(self) -> bool:
        """Whether a retry may cure it."""
        return isinstance(self, Transient)


def _rebuild(cls: type[JoulefleetError], message: str, hint: str) -> JoulefleetError:
    return cls(message, hint=hint)


class StorageError(JoulefleetError):
    """A directory or file could not be written, or does not read back."""


class StorageFull(StorageError, Transient):
    """No space left; everything appended before stays readable."""


class DamagedEmulation(StorageError):
    """What is stored of one emulation cannot be gone on with; others of its run can."""


class MissingExtra(JoulefleetError):
    """An optional dependency group is needed and not installed."""

    exit_code = EXIT_USAGE


class ConfigError(JoulefleetError):
    """A file that people write (TOML) or a value they gave is wrong."""

    exit_code = EXIT_CONFIG


class DeviceError(JoulefleetError):
    """A phone or board refused, failed or answered nonsense."""

    exit_code = EXIT_DEVICE


class DeviceUnreachable(DeviceError, Transient):
    """The link to a device is down."""


class AgentDied(DeviceUnreachable):
    """The agent on a device ended by itself or was killed; twice at the same work it will do so again."""


class DeviceProtocolError(DeviceError):
    """What came from a device is not what an agent of this version sends."""


class DeviceFull(DeviceError, Transient):
    """No space left on the device."""


class DeviceBusy(DeviceError, Transient):
    """Another job runs on the device; a second one would be measured together with it."""


class CalledOff(DeviceError):
    """A round of several devices does not begin or does not count, because of another of them."""


class MeterError(JoulefleetError):
    """A power instrument refused, failed or answered nonsense."""

    exit_code = EXIT_METER


class MeterNotFound(MeterError):
    """No such instrument, or no permission to open it."""


class MeterBusy(MeterError, Transient):
    """Another process holds the instrument."""


class MeterDisconnected(MeterError, Transient):
    """The instrument went away in the middle."""


class MeterSilent(MeterError, Transient):
    """The instrument is there and sends nothing, or nothing any more."""


class MeterProtocolError(MeterError, Transient):
    """The instrument sent bytes that its protocol does not allow."""


class UnsafeOutput(MeterError):
    """A voltage or current outside what the inventory allows for this device."""


class NobodyLeft(JoulefleetError):
    """No device is eligible now, nor within a year of virtual time."""


class DataQualityError(JoulefleetError):
    """Evidence that must not become a number."""

    exit_code = EXIT_DATA_QUALITY


class ProvenanceError(DataQualityError):
    """A claim stronger than the evidence behind it."""


def describe(error: BaseException) -> str:
    """An error in one sentence."""
    if isinstance(error, JoulefleetError):
        return error.message
    return printable(f"{type(error).__name__}: {error}", keep="\n")
