"""USB instruments through libusb: found by ids and serial number, claimed, with typed errors."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from joulefleet.errors import (
    MeterBusy,
    MeterDisconnected,
    MeterError,
    MeterNotFound,
    MeterProtocolError,
    MissingExtra,
)
from joulefleet.install_hint import install_hint
from power.meters.usb.interrupts import without_interrupt
from power.wire.hvpm_control import EMULATED_MAKER

if TYPE_CHECKING:
    import usb1

    from power.meters.usb.queue import BulkQueue

T = TypeVar("T")

EMULATED_PREFIX = "usb-emulated:"
CONTROL_TIMEOUT_MS = 5000


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
    return without_interrupt(lambda: _scan(wanted, port))


def _scan(wanted: UsbId, port: str) -> list[UsbDeviceInfo]:
    with contextlib.closing(_context(wanted, port)) as context:
        return [
            UsbDeviceInfo(_location(device), opened.serial, opened.problem.message if opened.problem else "")
            for device in _devices(context, wanted)
            for opened in [_open(device, wanted)]
        ]


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
        self._closed = True
        self._queue: BulkQueue | None = None
        try:
            without_interrupt(lambda: self._open(wanted, serial, port))
        except KeyboardInterrupt:  # it may be open by now
            self.close()
            raise

    def _open(self, wanted: UsbId, serial: str, port: str) -> None:
        self._context = _context(wanted, port)
        try:
            device, self._handle, self.serial = _find(self._context, wanted, serial)
            by_address = port.startswith(EMULATED_PREFIX)
            self.location = port if by_address else _location(device)
            self.emulated = by_address or _maker(self._handle) == EMULATED_MAKER
            self._closed = False
            self._call(self._claim)
        except BaseException:
            self._close()
            raise

    def control_read(self, request_type: int, request: int, value: int, index: int, length: int) -> bytes:
        """A control transfer to the host."""
        fields = (request_type, request, value, index, length, CONTROL_TIMEOUT_MS)
        return bytes(self._call(lambda: self._handle.controlRead(*fields)))

    def control_write(
        self, request_type: int, request: int, value: int, index: int, data: bytes = b""
    ) -> None:
        """A control transfer to the device."""
        fields = (request_type, request, value, index, data, CONTROL_TIMEOUT_MS)
        self._call(lambda: self._handle.controlWrite(*fields))

    def queue_reads(self, endpoint: int, size: int, transfers: int) -> BulkQueue:
        """Keep so many reads of a bulk endpoint under way; the queue ends the one before it."""
        from power.meters.usb.queue import BulkQueue

        def replace() -> BulkQueue:  # as one: transfers that nobody knows of would take the packets
            self._end_queue()
            self._queue = BulkQueue(
                self._context,
                self._handle,
                endpoint=endpoint,
                size=size,
                transfers=transfers,
                error=lambda error: usb_error(self._id, self.location, error),
            )
            return self._queue

        self._require_open()
        return without_interrupt(replace)

    def close(self) -> None:
        """Release the device; nothing is sent to it. May be called twice."""
        if not self._closed:
            without_interrupt(self._close)  # also a second Ctrl-C, while the first one closes it

    def _close(self) -> None:
        self._closed = True
        try:
            self._end_queue()
        finally:
            self._context.close()  # and with it the handle, which gives up the claim

    def _end_queue(self) -> None:
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()

    def _call(self, call: Callable[[], T]) -> T:
        import usb1

        self._require_open()
        try:
            return without_interrupt(call)
        except (usb1.USBError, ValueError) as error:
            raise usb_error(self._id, self.location, error) from error

    def _require_open(self) -> None:
        if self._closed:
            raise MeterError(f"{self._id.kind} on {self.location}: is closed", hint="open it again")

    def _claim(self) -> None:
        import usb1

        # A kernel driver that holds the interface would make the claim fail; most systems have none.
        with contextlib.suppress(usb1.USBErrorNotSupported):
            self._handle.setAutoDetachKernelDriver(True)
        if self._handle.getConfiguration() == 0:
            self._handle.setConfiguration(1)
        self._handle.claimInterface(0)


def libusb_version() -> str:
    """The version of the C library; loads it, once in a process.

    Raises:
        MissingExtra: The packages for USB are not installed.
        MeterError: There is no libusb.
    """
    try:
        import libusb_package
        import usb1
    except ImportError as error:
        raise _missing(error) from error
    try:
        path = libusb_package.get_library_path()  # None where the package holds no library: the system's
        usb1.loadLibrary(ctypes.CDLL(str(path), use_errno=True) if path else None)
    except OSError as error:
        raise MeterError(
            f"libusb 1.0 does not load ({error})",
            hint="install it: `sudo apt install libusb-1.0-0`, or `brew install libusb`",
        ) from error
    found = usb1.getVersion()
    return f"{found.major}.{found.minor}.{found.micro}"


def _missing(error: ImportError) -> MissingExtra:
    return MissingExtra(f"USB support is not installed ({error.name})", hint=install_hint("monsoon"))


def _context(wanted: UsbId, port: str) -> usb1.USBContext:
    """Access to the bus, to be closed: libusb, or emulated devices with its interface."""
    if port.startswith(EMULATED_PREFIX):
        try:
            from power.emulated.usb.context import EmulatedContext
        except ImportError as error:
            raise _missing(error) from error
        return EmulatedContext(port).open()
    if port:
        raise MeterNotFound(
            f"{wanted.kind}: {port!r} is no USB address",
            hint=f"leave port empty and give serial, or use the {EMULATED_PREFIX}... address of an emulator",
        )
    libusb_version()
    import usb1

    try:
        return usb1.USBContext().open()
    except usb1.USBError as error:
        raise MeterError(
            f"{wanted.kind}: libusb does not start ({error})", hint="is the USB subsystem available here?"
        ) from error


def _devices(context: usb1.USBContext, wanted: UsbId) -> list[usb1.USBDevice]:
    ids = (wanted.vendor, wanted.product)
    found = context.getDeviceIterator(skip_on_error=True)
    return [device for device in found if (device.getVendorID(), device.getProductID()) == ids]


@dataclass(frozen=True, slots=True)
class _Opened:
    """A device that was tried: a handle and a serial number, or a problem."""

    device: usb1.USBDevice
    handle: usb1.USBDeviceHandle | None = None
    serial: str = ""
    problem: MeterError | None = None


def _open(device: usb1.USBDevice, wanted: UsbId) -> _Opened:
    import usb1

    try:
        handle = device.open()
        return _Opened(device, handle, handle.getSerialNumber() or "")
    except (usb1.USBError, ValueError) as error:
        return _Opened(device, problem=usb_error(wanted, _location(device), error))


def _find(
    context: usb1.USBContext, wanted: UsbId, serial: str
) -> tuple[usb1.USBDevice, usb1.USBDeviceHandle, str]:
    """The one device that is meant; all others are closed again."""
    tried = [_open(device, wanted) for device in _devices(context, wanted)]
    opened = [one for one in tried if one.problem is None]
    matching = [one for one in opened if not serial or same_serial(serial, one.serial)]
    if len(matching) == 1:
        for one in opened:
            if one is not matching[0] and one.handle is not None:
                one.handle.close()
        return matching[0].device, matching[0].handle, matching[0].serial
    problems = [one.problem for one in tried if one.problem is not None]
    if not matching and problems:
        raise problems[-1]
    raise _not_found(context, wanted, serial, [one.serial for one in opened])


def _not_found(context: usb1.USBContext, wanted: UsbId, serial: str, numbers: list[str]) -> MeterNotFound:
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
        if _devices(context, UsbId(wanted.kind, vendor, product)):
            hint = f"{vendor:04x}:{product:04x} may be one that waits for new firmware: power-cycle it"
    return MeterNotFound(f"{wanted.kind}: no USB device {wanted}", hint=hint)


def same_serial(one: str, other: str) -> bool:
    """Whether two serial numbers agree; units print leading zeros on their label only."""
    return one.strip().lstrip("0") == other.strip().lstrip("0")


def _maker(handle: usb1.USBDeviceHandle) -> str:
    import usb1

    try:
        return handle.getManufacturer() or ""
    except (usb1.USBError, ValueError):
        return ""


def _location(device: usb1.USBDevice) -> str:
    return f"usb bus {device.getBusNumber()} address {device.getDeviceAddress()}"


def usb_error(wanted: UsbId, where: str, error: Exception) -> MeterError:
    """The typed error for a failed USB call."""
    import usb1

    place = f"{wanted.kind} on {where}"
    if isinstance(error, usb1.USBErrorAccess):
        rule = (
            f'SUBSYSTEM=="usb", ATTR{{idVendor}}=="{wanted.vendor:04x}",'
            f' ATTR{{idProduct}}=="{wanted.product:04x}", MODE="0666"'
        )
        return MeterNotFound(
            f"{place}: no permission",
            hint=f"put the line `{rule}` into /etc/udev/rules.d/60-joulefleet.rules, run"
            " `sudo udevadm control --reload`, and plug it in again",
        )
    if isinstance(error, usb1.USBErrorBusy):
        return MeterBusy(f"{place}: in use by another process", hint="stop the other client, then try again")
    if isinstance(error, usb1.USBErrorNoDevice | usb1.USBErrorIO | usb1.USBErrorNotFound):
        return MeterDisconnected(
            f"{place}: the instrument went away ({error})",
            hint="check the cable and the instrument's power, then start again",
        )
    if isinstance(error, usb1.USBErrorTimeout):
        return MeterProtocolError(f"{place}: no answer", hint="power-cycle the instrument")
    what = {usb1.USBErrorPipe: "it refused (stall)", usb1.USBErrorOverflow: "it sent more than was asked for"}
    return MeterProtocolError(
        f"{place}: {what.get(type(error), str(error))}", hint="power-cycle the instrument"
    )
