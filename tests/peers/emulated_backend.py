"""A pyusb backend whose devices are emulated: pyusb itself runs, down to its transfers.

Depends on pyusb and the standard library only. Descriptors are those of a Monsoon as far as its clients
look: one configuration, one vendor interface, one bulk endpoint to the host.
"""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

import usb.backend
import usb.core

from power.emulated.usb.cable import ADDRESS_PREFIX, ControlRequest, Operation, TransferError
from power.emulated.usb.host import SocketHandle

T = TypeVar("T")

CONFIGURATION = 1
_TO_HOST = 0x80


class EmulatedBackend(usb.backend.IBackend):  # type: ignore[misc]  # pyusb has no types
    """See `usb.backend.IBackend`.

    Args:
        address: ``usb-emulated:PATH``, or several paths joined by ``os.pathsep``: the devices on the bus.
    """

    def __init__(self, address: str) -> None:
        self._paths = [p for p in address.removeprefix(ADDRESS_PREFIX).split(os.pathsep) if p]

    def enumerate_devices(self) -> Iterator[str]:
        """The devices that are plugged in."""
        return (path for path in self._paths if Path(path).is_socket())

    def get_parent(self, dev: str) -> None:
        """They hang on no hub."""

    def get_device_descriptor(self, dev: str) -> SimpleNamespace:
        """See `usb.backend.IBackend`."""
        address = self._paths.index(dev) + 1
        return SimpleNamespace(
            bLength=18,
            bDescriptorType=1,
            bcdUSB=0x0200,
            bDeviceClass=0xFF,
            bDeviceSubClass=0,
            bDeviceProtocol=0,
            bMaxPacketSize0=64,
            idVendor=0x2AB9,
            idProduct=0x0001,
            bcdDevice=0x0100,
            iManufacturer=1,
            iProduct=2,
            iSerialNumber=3,
            bNumConfigurations=1,
            address=address,
            bus=0,
            port_number=address,
            port_numbers=(address,),
            speed=2,  # full speed
        )

    def get_configuration_descriptor(self, dev: str, config: int) -> SimpleNamespace:
        """See `usb.backend.IBackend`."""
        _only_first(config)
        return SimpleNamespace(
            bLength=9,
            bDescriptorType=2,
            wTotalLength=9 + 9 + 7,
            bNumInterfaces=1,
            bConfigurationValue=CONFIGURATION,
            iConfiguration=0,
            bmAttributes=0xC0,
            bMaxPower=50,
            extra_descriptors=[],
        )

    def get_interface_descriptor(self, dev: str, intf: int, alt: int, config: int) -> SimpleNamespace:
        """See `usb.backend.IBackend`."""
        _only_first(intf, alt, config)
        return SimpleNamespace(
            bLength=9,
            bDescriptorType=4,
            bInterfaceNumber=0,
            bAlternateSetting=0,
            bNumEndpoints=1,
            bInterfaceClass=0xFF,
            bInterfaceSubClass=0,
            bInterfaceProtocol=0,
            iInterface=0,
            extra_descriptors=[],
        )

    def get_endpoint_descriptor(self, dev: str, ep: int, intf: int, alt: int, config: int) -> SimpleNamespace:
        """See `usb.backend.IBackend`."""
        _only_first(ep, intf, alt, config)
        return SimpleNamespace(
            bLength=7,
            bDescriptorType=5,
            bEndpointAddress=0x81,
            bmAttributes=2,  # bulk
            wMaxPacketSize=64,
            bInterval=0,
            bRefresh=0,
            bSynchAddress=0,
            extra_descriptors=[],
        )

    def open_device(self, dev: str) -> SocketHandle:
        """See `usb.backend.IBackend`."""
        return _transfer(lambda: SocketHandle(dev))

    def close_device(self, dev_handle: SocketHandle) -> None:
        """See `usb.backend.IBackend`."""
        dev_handle.close()

    def set_configuration(self, dev_handle: SocketHandle, config_value: int) -> None:
        """See `usb.backend.IBackend`; there is only one, always set."""
        if config_value != CONFIGURATION:
            raise _usb_error(errno.EINVAL)

    def get_configuration(self, dev_handle: SocketHandle) -> int:
        """See `usb.backend.IBackend`."""
        return CONFIGURATION

    def set_interface_altsetting(self, dev_handle: SocketHandle, intf: int, altsetting: int) -> None:
        """See `usb.backend.IBackend`."""
        _only_first(intf, altsetting)

    def claim_interface(self, dev_handle: SocketHandle, intf: int) -> None:
        """See `usb.backend.IBackend`."""
        _transfer(lambda: dev_handle.call(Operation.CLAIM))

    def release_interface(self, dev_handle: SocketHandle, intf: int) -> None:
        """See `usb.backend.IBackend`."""
        _transfer(lambda: dev_handle.call(Operation.RELEASE))

    def bulk_read(self, dev_handle: SocketHandle, ep: int, intf: int, buff: array[int], timeout: int) -> int:
        """See `usb.backend.IBackend`."""
        return _fill(buff, _transfer(lambda: dev_handle.bulk_read(ep, len(buff), timeout)))

    def ctrl_transfer(
        self,
        dev_handle: SocketHandle,
        bmRequestType: int,  # noqa: N803 - the names of the interface
        bRequest: int,  # noqa: N803
        wValue: int,  # noqa: N803
        wIndex: int,  # noqa: N803
        data: array[int],
        timeout: int,
    ) -> int:
        """See `usb.backend.IBackend`."""
        to_host = bmRequestType & _TO_HOST
        out = b"" if to_host else data.tobytes()
        request = ControlRequest(bmRequestType, bRequest, wValue, wIndex, len(data), out)
        answer = _transfer(lambda: dev_handle.control(request, timeout))
        return _fill(data, answer) if to_host else len(out)

    def reset_device(self, dev_handle: SocketHandle) -> None:
        """See `usb.backend.IBackend`."""
        _transfer(lambda: dev_handle.call(Operation.RESET))

    def clear_halt(self, dev_handle: SocketHandle, ep: int) -> None:
        """See `usb.backend.IBackend`; nothing ever halts."""

    def is_kernel_driver_active(self, dev_handle: SocketHandle, intf: int) -> bool:
        """See `usb.backend.IBackend`."""
        return False

    def detach_kernel_driver(self, dev_handle: SocketHandle, intf: int) -> None:
        """See `usb.backend.IBackend`; libusb too reports that there was none."""
        raise _usb_error(errno.ENOENT)


def _transfer(call: Callable[[], T]) -> T:
    """Do something on the wire, with the errors that pyusb's users expect."""
    try:
        return call()
    except TransferError as error:
        raise _usb_error(error.code) from error


def _usb_error(code: int) -> usb.core.USBError:
    kind = usb.core.USBTimeoutError if code == errno.ETIMEDOUT else usb.core.USBError
    return kind(os.strerror(code), code, code)


def _fill(buffer: array[int], data: bytes) -> int:
    """Copy into the caller's buffer; more than fits is an overflow, as on a real bus."""
    if len(data) > len(buffer):
        raise _usb_error(errno.EOVERFLOW)
    buffer[: len(data)] = array("B", data)
    return len(data)


def _only_first(*indices: int) -> None:
    """There is one of everything; clients ask by index until there are no more."""
    if any(indices):
        raise IndexError
