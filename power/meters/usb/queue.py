"""Bulk reads that never pause: a queue of asynchronous transfers.

The kernel fills the transfers while this program is busy, and keeps them until it looks, so a program that is
late loses nothing until all of them are full. There is no hand-over: the thread that calls `BulkQueue.read`
handles libusb's events, as any control transfer does meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import usb1  # noqa: TID253 - this module is imported only where libusb1 is wanted

from power.meters.usb.interrupts import without_interrupt

PACKETS_MAX: Final = 4096
"""Packets that may wait for `BulkQueue.read`. While there are more, no transfer is started again: it is the
instrument that drops samples then, and that counts them."""

GATHER_S: Final = 0.001
"""How long packets may gather before they are looked at: to wake up for each of 5000 a second takes twice
the processor time. Much less than the transfers hold."""

MANY: Final = 16
"""After so many at once this program is late, and does not wait for more."""

CANCEL_S: Final = 5.0
"""How long cancelled transfers may take to come back; a kernel needs milliseconds."""

_ERRORS: Final = {
    usb1.TRANSFER_STALL: usb1.USBErrorPipe,
    usb1.TRANSFER_NO_DEVICE: usb1.USBErrorNoDevice,
    usb1.TRANSFER_OVERFLOW: usb1.USBErrorOverflow,
    usb1.TRANSFER_TIMED_OUT: usb1.USBErrorTimeout,
}

log = logging.getLogger(__name__)


class BulkQueue:
    """Reads of one endpoint.

    Args:
        context: The open context of libusb.
        handle: The open device, its interface claimed.
        endpoint: Which endpoint.
        size: Bytes of a transfer. A shorter packet ends it, so that each holds one packet.
        transfers: How many are under way at once.
        error: Makes an error of libusb one of ours.

    Raises:
        MeterError: The transfers do not start.
    """

    def __init__(
        self,
        context: usb1.USBContext,
        handle: usb1.USBDeviceHandle,
        *,
        endpoint: int,
        size: int,
        transfers: int,
        error: Callable[[Exception], Exception],
    ) -> None:
        self._context, self._error = context, error
        self._packets: deque[bytes] = deque()
        self._outcomes: dict[int, bytes | Exception] = {}  # by number, until it is their turn
        self._submitted = self._delivered = 0
        self._parked: deque[usb1.USBTransfer] = deque()
        self._failure: BaseException | None = None
        self._closing = self._flowing = False
        self._transfers = [handle.getTransfer() for _ in range(transfers)]
        for transfer in self._transfers:
            transfer.setBulk(endpoint, size, callback=self._completed)
            self._submit(transfer)
        if failed := [o for o in self._outcomes.values() if isinstance(o, Exception)]:
            self.close()
            raise failed[0]

    def read(self, timeout_s: float) -> list[bytes]:
        """The packets that have arrived, in order; waits for the first until the timeout.

        Raises:
            MeterDisconnected: The device is gone; everything that came before has been returned.
            MeterProtocolError: The endpoint stalled, or sent more than fits.
        """
        return without_interrupt(lambda: self._read(timeout_s))

    def _read(self, timeout_s: float) -> list[bytes]:
        deadline = time.monotonic() + timeout_s
        if self._flowing and not self._packets:
            time.sleep(GATHER_S)
        while not self._packets:
            if self._failure is not None:
                raise self._failure
            left_s = deadline - time.monotonic()
            self._handle_events(max(0.0, left_s))
            if left_s <= 0 and self._failure is None:
                break
        self._flowing = 0 < len(self._packets) < MANY
        packets = [self._packets.popleft() for _ in range(len(self._packets))]
        while self._parked:
            self._submit(self._parked.popleft())
        return packets

    def close(self) -> None:
        """Cancel what is under way and wait for it; nothing is left behind. May be called twice."""
        without_interrupt(self._close)

    def _close(self) -> None:
        self._closing = True
        for transfer in self._transfers:
            # One that ended a moment ago cannot be cancelled, nor one whose device is gone; they end.
            with contextlib.suppress(usb1.USBError):
                transfer.cancel()
        deadline = time.monotonic() + CANCEL_S
        while any(transfer.isSubmitted() for transfer in self._transfers):
            if time.monotonic() > deadline:
                log.warning("USB transfers do not end although they were cancelled: is the device stuck?")
                return
            self._handle_events(0.1)
        while self._transfers:
            self._transfers.pop().close()

    def _handle_events(self, timeout_s: float) -> None:
        try:
            self._context.handleEventsTimeout(timeout_s)
        except usb1.USBErrorInterrupted:
            pass  # a signal, whose handler has run
        except usb1.USBError as error:
            # Its turn comes behind the packets that were handed over before it.
            self._failure = self._failure or self._error(error)

    def _submit(self, transfer: usb1.USBTransfer) -> None:
        """A transfer that cannot be started fails in its turn: those before it may hold data."""
        number, self._submitted = self._submitted, self._submitted + 1
        transfer.setUserData(number)
        try:
            transfer.submit()
        except usb1.USBError as error:
            self._outcomes[number] = self._error(error)

    def _completed(self, transfer: usb1.USBTransfer) -> None:
        """A transfer is back. What is raised here would be lost in libusb, so the reader gets it."""
        try:
            self._outcomes[transfer.getUserData()] = self._outcome(transfer)
            if self._closing or self._failure is not None:
                return
            if len(self._packets) < PACKETS_MAX:
                self._submit(transfer)
            else:
                self._parked.append(transfer)
            self._deliver()
        except BaseException as error:
            self._failure = self._failure or error

    def _outcome(self, transfer: usb1.USBTransfer) -> bytes | Exception:
        status = transfer.getStatus()
        if status == usb1.TRANSFER_COMPLETED:
            return bytes(transfer.getBuffer()[: transfer.getActualLength()])
        return self._error(_ERRORS.get(status, usb1.USBErrorIO)())

    def _deliver(self) -> None:
        """In the order of submission; behind a failure there is a hole, and nothing is data any more."""
        while self._failure is None and self._delivered in self._outcomes:
            outcome = self._outcomes.pop(self._delivered)
            self._delivered += 1
            if isinstance(outcome, Exception):
                self._failure = outcome
            elif outcome:
                self._packets.append(outcome)
