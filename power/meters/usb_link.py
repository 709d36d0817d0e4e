"""USB instruments through pyusb: found by ids and serial number, claimed, with typed errors."""

from __future__ import annotations

import contextlib
import errno
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from joulefleet.errors import (
    MeterBusy,
    MeterDisconnected,
    MeterError,
    MeterNotFound,
    MeterProtocolError,
    MissingExtra,
)
from joulefleet.install_hint import install_hint
from power.wire.hvpm_control import EMULATED_MAKER

if TYPE_CHECKING:
    import usb.core

EMULATED_PREFIX = "usb-emulated:"
CONTROL_TIMEOUT_MS = 5000

_GONE = (errno.ENODEV, errno.ENXIO, errno.EIO, errno.ESHUTDOWN, errno.EPROTO)


@dataclass(frozen=True, slots=True)
class UsbId:
    """Which devices are meant.

    Attributes:
        kind: What messages call it.
        vendor: Vendor id.
        product: Product id.
        bootloaders: Vendor and product ids of units that wait for firmware.
    """

    kind: str
    vendor: int
    product: int
    bootloaders: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        return f"{self.vendor:04x}:{self.product:04x}"


@dataclass(frozen=True, slots=True)
class UsbDeviceInfo:
    """A device that is plugged in; ``serial`` is empty and ``problem`` says why if it does not open."""

    location: str
    serial: str
    problem: str = ""


def scan_usb(wanted: UsbId, port: str = "") -> list[UsbDeviceInfo]:
    """The devices with these ids, without disturbing whoever uses them."""
    found = []
    for device in _devices(wanted, port):
        try:
            found.append(UsbDeviceInfo(_location(device), _serial_of(device)))
        except (OSError, ValueError) as error:
            problem = usb_error(wanted, _location(device), error).message
            found.append(UsbDeviceInfo(_location(device), "", problem))
        finally:
            _dispose(device)
    return found


class UsbLink:
    """One claimed USB device.

    Args:
        wanted: Its ids.
        serial: Its serial number; empty takes the only one there is.
        port: Empty for the real bus, or the address of an emulated device.

    Raises:
        MeterNotFound: No such device, several to choose from, or no permission.
        MeterBusy: Another process has claimed it.
    """

    def __init__(self, wanted: UsbId, *, serial: str = "", port: str = "") -> None:
        self._id = wanted
        self._closed = False
        self.emulated = port.startswith(EMULATED_PREFIX)
        self._device, self.serial = _find(wanted, serial, port)
        self.emulated = self.emulated or _text(self._device, "manufacturer") == EMULATED_MAKER
        self.location = port if port.startswith(EMULATED_PREFIX) else _location(self._device)
        try:
            self._claim()
        except (OSError, ValueError) as error:
            _dispose(self._device)
            raise usb_error(wanted, self.location, error) from error

    def control_read(self, request_type: int, request: int, value: int, index: int, length: int) -> bytes:
        """A control transfer to the host."""
        return bytes(self._control(request_type, request, value, index, length))

    def control_write(
        self, request_type: int, request: int, value: int, index: int, data: bytes = b""
    ) -> None:
        """A control transfer to the device."""
        self._control(request_type, request, value, index, data)

    def _control(self, request_type: int, request: int, value: int, index: int, data: bytes | int) -> Any:
        self._require_open()
        try:
            return self._device.ctrl_transfer(request_type, request, value, index, data, CONTROL_TIMEOUT_MS)
        except OSError as error:
            raise usb_error(self._id, self.location, error) from error

    def bulk_read(self, endpoint: int, size: int, timeout_s: float) -> bytes:
        """One bulk packet, or ``b""`` after the timeout.

        Raises:
            MeterDisconnected: The device is gone.
        """
        self._require_open()
        try:
            return bytes(self._device.read(endpoint, size, max(1, round(timeout_s * 1000))))
        except OSError as error:
            if error.errno == errno.ETIMEDOUT:
                return b""
            raise usb_error(self._id, self.location, error) from error

    def _require_open(self) -> None:
        # pyusb would quietly open the device again.
        if self._closed:
            raise MeterError(f"{self._id.kind} on {self.location}: is closed", hint="open it again")

    def close(self) -> None:
        """Release the device; nothing is sent to it. May be called twice."""
        self._closed = True
        _dispose(self._device)

    def _claim(self) -> None:
        import usb.util

        # A kernel driver that holds the interface would make the claim fail; most systems have none.
        with contextlib.suppress(NotImplementedError):
            if self._device.is_kernel_driver_active(0):
                self._device.detach_kernel_driver(0)
        try:
            self._device.get_active_configuration()
        except OSError as error:
            if error.errno is not None:  # pyusb gives "configuration not set" no number
                raise
            self._device.set_configuration()
        usb.util.claim_interface(self._device, 0)


def _devices(wanted: UsbId, port: str) -> Iterator[usb.core.Device]:
    backend = _backend(wanted, port)
    import usb.core

    found: Iterator[usb.core.Device] = usb.core.find(
        find_all=True, backend=backend, idVendor=wanted.vendor, idProduct=wanted.product
    )
    return found


def _backend(wanted: UsbId, port: str) -> Any:
    try:
        if port.startswith(EMULATED_PREFIX):
            from power.emulated.usb_backend import EmulatedBackend

            return EmulatedBackend(port)
        import libusb_package
    except ImportError as error:
        raise MissingExtra(
            f"{wanted.kind}: USB support is not installed ({error.name})",
            hint=install_hint("monsoon"),
        ) from error
    if port:
        raise MeterNotFound(
            f"{wanted.kind}: {port!r} is no USB address",
            hint=f"leave port empty and give serial, or use the {EMULATED_PREFIX}... address of an emulator",
        )
    backend = libusb_package.get_libusb1_backend()
    if backend is None:
        raise MeterError(f"{wanted.kind}: libusb does not load", hint="is the USB subsystem available here?")
    return backend


def _find(wanted: UsbId, serial: str, port: str) -> tuple[usb.core.Device, str]:
    """The one device that is meant; all others are closed again."""
    opened: list[tuple[usb.core.Device, str]] = []
    problem: MeterError | None = None
    for device in _devices(wanted, port):
        try:
            opened.append((device, _serial_of(device)))
        except (OSError, ValueError) as error:
            problem = usb_error(wanted, _location(device), error)
            _dispose(device)
    matching = [found for found in opened if not serial or same_serial(serial, found[1])]
    for found in opened:
        if len(matching) != 1 or found is not matching[0]:
            _dispose(found[0])
    if len(matching) == 1:
        return matching[0]
    if not matching and problem is not None:
        raise problem
    raise _not_found(wanted, serial, port, [number for _, number in opened])


def _not_found(wanted: UsbId, serial: str, port: str, numbers: list[str]) -> MeterNotFound:
    if numbers and serial:
        return MeterNotFound(
            f"{wanted.kind}: no instrument with serial number {serial}, but {', '.join(numbers)}",
            hint="correct serial in the configuration",
        )
    if numbers:
        return MeterNotFound(
            f"{wanted.kind}: several instruments: {', '.join(numbers)}",
            hint="give the serial number of the one you mean",
        )
    hint = "is it plugged in and powered? `lsusb` lists devices"
    for vendor, product in wanted.bootloaders:
        if any(_devices(UsbId(wanted.kind, vendor, product), port)):
            hint = f"{vendor:04x}:{product:04x} may be one that waits for new firmware: power-cycle it"
    return MeterNotFound(f"{wanted.kind}: no USB device {wanted}", hint=hint)


def same_serial(one: str, other: str) -> bool:
    """Whether two serial numbers agree; units print leading zeros on their label only."""
    return one.strip().lstrip("0") == other.strip().lstrip("0")


def _serial_of(device: usb.core.Device) -> str:
    import usb.util

    usb.util.get_langids(device)  # unlike device.serial_number it does not swallow "no permission"
    return str(device.serial_number or "")


def _text(device: usb.core.Device, name: str) -> str:
    try:
        return str(getattr(device, name) or "")
    except (OSError, ValueError, NotImplementedError):
        return ""


def _location(device: usb.core.Device) -> str:
    return f"usb bus {device.bus} address {device.address}"


def _dispose(device: usb.core.Device) -> None:
    import usb.util

    with contextlib.suppress(OSError):
        usb.util.dispose_resources(device)


def usb_error(wanted: UsbId, where: str, error: Exception) -> MeterError:
    """The typed error for a failed USB call."""
    code = getattr(error, "errno", None)
    place = f"{wanted.kind} on {where}"
    if code in (errno.EACCES, errno.EPERM):
        rule = (
            f'SUBSYSTEM=="usb", ATTR{{idVendor}}=="{wanted.vendor:04x}",'
            f' ATTR{{idProduct}}=="{wanted.product:04x}", MODE="0666"'
        )
        return MeterNotFound(
            f"{place}: no permission",
            hint=f"put the line `{rule}` into /etc/udev/rules.d/60-joulefleet.rules, run"
            " `sudo udevadm control --reload`, and plug it in again",
        )
    if code == errno.EBUSY:
        return MeterBusy(f"{place}: in use by another process", hint="stop the other client, then try again")
    if code in _GONE:
        return MeterDisconnected(
            f"{place}: the instrument went away ({error})",
            hint="check the cable and the instrument's power, then start again",
        )
    if code == errno.ETIMEDOUT:
        return MeterProtocolError(f"{place}: no answer", hint="power-cycle the instrument")
    return MeterProtocolError(f"{place}: {error}", hint="power-cycle the instrument")


# A Monsoon holds 3.2 ms of samples, less than a thread's usual turn of the interpreter (5 ms).
_lock = threading.Lock()
_readers = 0
_usual_s = sys.getswitchinterval()


def shorten_switch_interval(interval_s: float) -> None:
    """Lower the interpreter's switch interval; each call needs one of `restore_switch_interval`."""
    global _readers, _usual_s  # noqa: PLW0603 - the interval belongs to the process, not to a meter
    with _lock:
        if _readers == 0:
            _usual_s = sys.getswitchinterval()
        _readers += 1
        sys.setswitchinterval(min(sys.getswitchinterval(), interval_s))


def restore_switch_interval() -> None:
    """The interval as it was, once the last reader is done."""
    global _readers  # noqa: PLW0603
    with _lock:
        _readers -= 1
        if _readers == 0:
            sys.setswitchinterval(_usual_s)
