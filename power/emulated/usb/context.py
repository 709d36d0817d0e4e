"""Emulated devices behind the interface of python-libusb1, as far as our drivers use it.

A driver that is handed an `EmulatedContext` in place of ``usb1.USBContext`` runs as it would with libusb: the
same calls, transfers, states and exceptions. Events are handled by the thread that asks for it, and a control
transfer may be made meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import usb1  # noqa: TID253 - this module is imported only where libusb1 is wanted

from power.emulated.usb.cable import ADDRESS_PREFIX, ControlRequest, Operation, TransferError
from power.emulated.usb.host import Answer, SocketHandle
from power.wire.hvpm_control import PRODUCT_ID, VENDOR_ID

T = TypeVar("T")

_TO_HOST: Final = 0x80
_GET_DESCRIPTOR: Final = 6
_STRING: Final = 0x0300
_MANUFACTURER, _SERIAL_NUMBER = 1, 3
_STRING_BYTES: Final = 255
_LOOK_S: Final = 0.02

_ERRORS: Final = {
    errno.EACCES: usb1.USBErrorAccess,
    errno.EBUSY: usb1.USBErrorBusy,
    errno.ENODEV: usb1.USBErrorNoDevice,
    errno.ENOENT: usb1.USBErrorNotFound,
    errno.ETIMEDOUT: usb1.USBErrorTimeout,
    errno.EPIPE: usb1.USBErrorPipe,
    errno.EOVERFLOW: usb1.USBErrorOverflow,
    errno.EINVAL: usb1.USBErrorInvalidParam,
}
_STATES: Final = {
    0: usb1.TRANSFER_COMPLETED,
    errno.ENODEV: usb1.TRANSFER_NO_DEVICE,
    errno.ETIMEDOUT: usb1.TRANSFER_TIMED_OUT,
    errno.ECANCELED: usb1.TRANSFER_CANCELLED,
    errno.EPIPE: usb1.TRANSFER_STALL,
    errno.EOVERFLOW: usb1.TRANSFER_OVERFLOW,
}


class EmulatedContext:
    """See ``usb1.USBContext``.

    Args:
        address: ``usb-emulated:PATH``, or several paths joined by ``os.pathsep``: the devices on the bus.
    """

    def __init__(self, address: str) -> None:
        self._paths = [p for p in address.removeprefix(ADDRESS_PREFIX).split(os.pathsep) if p]
        self._handles: list[EmulatedHandle] = []

    def open(self) -> EmulatedContext:
        """See ``usb1.USBContext``."""
        return self

    def close(self) -> None:
        """See ``usb1.USBContext``."""
        for handle in list(self._handles):
            handle.close()

    def getDeviceIterator(self, skip_on_error: bool = False) -> Iterator[EmulatedUsbDevice]:  # noqa: N802
        """The devices that are plugged in."""
        for i, path in enumerate(self._paths):
            if Path(path).is_socket():
                yield EmulatedUsbDevice(self._handles, path, i + 1)

    def handleEventsTimeout(self, tv: float = 0) -> None:  # noqa: N802
        """Call back for the transfers that have ended; if there are none, wait for some."""
        deadline = time.monotonic() + tv
        while not self._call_back() and (left_s := deadline - time.monotonic()) > 0:
            for handle in list(self._handles):
                handle.receive(min(left_s, _LOOK_S) if len(self._handles) > 1 else left_s)

    def _call_back(self) -> bool:
        ended = [handle.call_back() for handle in list(self._handles)]
        return any(ended)


class EmulatedUsbDevice:
    """See ``usb1.USBDevice``."""

    def __init__(self, handles: list[EmulatedHandle], path: str, address: int) -> None:
        self._handles, self._path, self._address = handles, path, address

    def getVendorID(self) -> int:  # noqa: N802
        """See ``usb1.USBDevice``."""
        return VENDOR_ID

    def getProductID(self) -> int:  # noqa: N802
        """See ``usb1.USBDevice``."""
        return PRODUCT_ID

    def getBusNumber(self) -> int:  # noqa: N802
        """See ``usb1.USBDevice``; no real bus has this number."""
        return 0

    def getDeviceAddress(self) -> int:  # noqa: N802
        """See ``usb1.USBDevice``."""
        return self._address

    def open(self) -> EmulatedHandle:
        """See ``usb1.USBDevice``."""
        handle = EmulatedHandle(self._handles, _transfer(lambda: SocketHandle(self._path)))
        self._handles.append(handle)
        return handle


class EmulatedHandle:
    """See ``usb1.USBDeviceHandle``."""

    def __init__(self, handles: list[EmulatedHandle], cable: SocketHandle) -> None:
        self._handles, self._cable = handles, cable

    def getManufacturer(self) -> str | None:  # noqa: N802
        """See ``usb1.USBDeviceHandle``."""
        return self._string(_MANUFACTURER)

    def getSerialNumber(self) -> str | None:  # noqa: N802
        """See ``usb1.USBDeviceHandle``."""
        return self._string(_SERIAL_NUMBER)

    def setAutoDetachKernelDriver(self, enable: bool) -> None:  # noqa: N802
        """See ``usb1.USBDeviceHandle``; there is none."""

    def getConfiguration(self) -> int:  # noqa: N802
        """See ``usb1.USBDeviceHandle``; there is only one, always set."""
        return 1

    def claimInterface(self, interface: int) -> None:  # noqa: N802
        """See ``usb1.USBDeviceHandle``."""
        _transfer(lambda: self._cable.call(Operation.CLAIM))

    def releaseInterface(self, interface: int) -> None:  # noqa: N802
        """See ``usb1.USBDeviceHandle``."""
        _transfer(lambda: self._cable.call(Operation.RELEASE))

    def controlRead(  # noqa: N802
        self, request_type: int, request: int, value: int, index: int, length: int, timeout: int = 0
    ) -> bytearray:
        """See ``usb1.USBDeviceHandle``."""
        asked = ControlRequest(request_type | _TO_HOST, request, value, index, length, b"")
        return bytearray(_transfer(lambda: self._cable.control(asked, timeout)))

    def controlWrite(  # noqa: N802
        self, request_type: int, request: int, value: int, index: int, data: bytes, timeout: int = 0
    ) -> int:
        """See ``usb1.USBDeviceHandle``."""
        asked = ControlRequest(request_type & ~_TO_HOST, request, value, index, len(data), bytes(data))
        _transfer(lambda: self._cable.control(asked, timeout))
        return len(data)

    def getTransfer(self) -> EmulatedTransfer:  # noqa: N802
        """See ``usb1.USBDeviceHandle``."""
        return EmulatedTransfer(self._cable)

    def receive(self, timeout_s: float) -> None:
        """Wait for answers of the device."""
        self._cable.receive(timeout_s)

    def call_back(self) -> bool:
        """Tell whose transfers have ended; whether there were any."""
        return self._cable.call_back()

    def close(self) -> None:
        """See ``usb1.USBDeviceHandle``: transfers that are still under way are cancelled."""
        self._cable.close()
        self.call_back()
        with contextlib.suppress(ValueError):
            self._handles.remove(self)

    def _string(self, index: int) -> str | None:
        """A string descriptor in the first language (USB 2.0, 9.6.7)."""
        languages = self.controlRead(_TO_HOST, _GET_DESCRIPTOR, _STRING, 0, _STRING_BYTES, 1000)
        language = int.from_bytes(languages[2:4], "little")
        text = self.controlRead(_TO_HOST, _GET_DESCRIPTOR, _STRING | index, language, _STRING_BYTES, 1000)
        return text[2 : text[0]].decode("utf-16-le").encode("ascii", "replace").decode("ascii")


class EmulatedTransfer:
    """See ``usb1.USBTransfer``; bulk reads only."""

    def __init__(self, cable: SocketHandle) -> None:
        self._cable = cable
        self._submitted = False
        self._tag = 0
        self._endpoint = self._size = 0
        self._callback: Callable[[EmulatedTransfer], None] | None = None
        self._user_data: Any = None
        self._status = usb1.TRANSFER_COMPLETED
        self._data = b""

    def setBulk(  # noqa: N802
        self,
        endpoint: int,
        buffer_or_len: int,
        callback: Callable[[Any], None] | None = None,
        user_data: object = None,
        timeout: int = 0,
    ) -> None:
        """See ``usb1.USBTransfer``; without a timeout only."""
        self._endpoint, self._size = endpoint, buffer_or_len
        self._callback, self._user_data = callback, user_data

    def submit(self) -> None:
        """See ``usb1.USBTransfer``."""
        if self._submitted:
            raise ValueError("Cannot submit a submitted transfer")
        self._submitted = True
        try:
            self._tag = _transfer(lambda: self._cable.queue_read(self._endpoint, self._size, self._end))
        except usb1.USBError:
            self._submitted = False
            raise

    def cancel(self) -> None:
        """See ``usb1.USBTransfer``."""
        if not self._submitted:
            raise usb1.USBErrorNotFound
        _transfer(lambda: self._cable.cancel(self._tag))

    def _end(self, answer: Answer) -> None:
        self._submitted = False
        self._data = answer.data[: self._size]
        code = errno.EOVERFLOW if len(answer.data) > self._size else answer.code
        self._status = _STATES.get(code, usb1.TRANSFER_ERROR)
        if self._callback is not None:
            self._callback(self)

    def isSubmitted(self) -> bool:  # noqa: N802
        """See ``usb1.USBTransfer``."""
        return self._submitted

    def getStatus(self) -> int:  # noqa: N802
        """See ``usb1.USBTransfer``."""
        return int(self._status)

    def getActualLength(self) -> int:  # noqa: N802
        """See ``usb1.USBTransfer``."""
        return len(self._data)

    def getBuffer(self) -> bytes:  # noqa: N802
        """See ``usb1.USBTransfer``."""
        return self._data

    def getUserData(self) -> Any:  # noqa: N802
        """See ``usb1.USBTransfer``."""
        return self._user_data

    def setUserData(self, user_data: object) -> None:  # noqa: N802
        """See ``usb1.USBTransfer``."""
        self._user_data = user_data

    def close(self) -> None:
        """See ``usb1.USBTransfer``."""
        if self._submitted:
            raise ValueError("Cannot close a submitted transfer")
        self._callback = self._user_data = None


def _transfer(call: Callable[[], T]) -> T:
    """Do something on the wire, with the errors that users of libusb expect."""
    try:
        return call()
    except TransferError as error:
        raise _ERRORS.get(error.code, usb1.USBErrorIO) from error
