"""Ways of reading the stand-in's device: our queue, and one packet at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import usb1

from power.meters.hvpm_unit import QUEUED_READS, USB_ID
from power.meters.monsoon_hvpm import SWITCH_INTERVAL_S
from power.meters.usb.link import UsbLink

__all__ = ["QUEUED_READS", "SWITCH_INTERVAL_S", "Read", "one_by_one", "queued"]

ENDPOINT, SIZE, TIMEOUT_S = 0x81, 64, 0.2

Read = Callable[[], list[bytes]]


@contextmanager
def queued(transfers: int) -> Iterator[Read]:
    """So many transfers under way."""
    link = UsbLink(USB_ID)
    queue = link.queue_reads(ENDPOINT, SIZE, transfers)
    try:
        yield lambda: queue.read(TIMEOUT_S)
    finally:
        link.close()


@contextmanager
def one_by_one() -> Iterator[Read]:
    """libusb's synchronous reads."""
    with usb1.USBContext() as context:
        handle = context.openByVendorIDAndProductID(USB_ID.vendor, USB_ID.product)
        handle.claimInterface(0)
        yield lambda: [bytes(handle.bulkRead(ENDPOINT, SIZE, round(TIMEOUT_S * 1000)))]
