"""What a queue of transfers does when things happen; each scenario in a process of its own.

::

    python -m tests.power.libusb_stand_in.scenarios FOLDER NAME [INTEGER ...]

Prints one line of JSON. Time is the stand-in's own, which makes everything exact.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import usb1

from joulefleet.errors import MeterError
from power.meters.hvpm_unit import USB_ID
from power.meters.usb_link import UsbLink, scan_usb
from power.meters.usb_queue import BulkQueue
from tests.power.libusb_stand_in.library import StandIn, load_stand_in

ENDPOINT, SIZE = 0x81, 64


def numbers(packets: list[bytes]) -> list[int]:
    """Of the observations in them."""
    return [
        int.from_bytes(packet[4 + 18 * i : 8 + 18 * i], "little")
        for packet in packets
        for i in range(packet[3])
    ]


def read_all(queue: BulkQueue) -> tuple[list[bytes], str, str]:
    """Until there is no more, or it fails."""
    packets: list[bytes] = []
    try:
        while some := queue.read(0.0):
            packets += some
    except MeterError as error:
        return packets, type(error).__name__, error.message
    return packets, "", ""


def late(library: StandIn, link: UsbLink, transfers: int, late_us: int) -> dict[str, Any]:
    """The program stays away once, then reads everything."""
    queue = link.queue_reads(ENDPOINT, SIZE, transfers)
    library.stand_in_start()
    library.stand_in_pass_us(late_us)
    packets, *_ = read_all(queue)
    library.stand_in_pass_us(200)
    packets += queue.read(0.0)
    return {"numbers": numbers(packets), "dropped": int.from_bytes(packets[-1][:2], "little")}


def failing(library: StandIn, link: UsbLink, status: int, after: int) -> dict[str, Any]:
    """The device fails after so many packets, before any of them was looked at."""
    queue = link.queue_reads(ENDPOINT, SIZE, 32)
    library.stand_in_start()
    library.stand_in_fail(status, after)
    library.stand_in_pass_us(200 * (after + 5))
    packets, error, message = read_all(queue)
    return {"numbers": numbers(packets), "error": error, "message": message, "again": read_all(queue)[1]}


def swapped(library: StandIn, link: UsbLink) -> dict[str, Any]:
    """Two transfers come back in the wrong order."""
    queue = link.queue_reads(ENDPOINT, SIZE, 32)
    library.stand_in_start()
    library.stand_in_pass_us(200 * 10)
    library.stand_in_swap()
    return {"numbers": numbers(read_all(queue)[0])}


def nobody_reads(library: StandIn, link: UsbLink) -> dict[str, Any]:
    """Events are handled, as a control transfer does, but nobody takes the packets; then somebody does."""
    queue = link.queue_reads(ENDPOINT, SIZE, 128)
    library.stand_in_start()
    for _ in range(20_000):
        library.stand_in_pass_us(200)
        link._context.handleEventsTimeout(0)
    waiting = len(queue._packets)
    packets, *_ = read_all(queue)
    for _ in range(10):
        library.stand_in_pass_us(200)
        packets += queue.read(0.0)
    seen = numbers(packets)
    return {
        "waiting": waiting,
        "made": library.stand_in_made(),
        "seen": len(seen),
        "in_order": seen == sorted(set(seen)),
        "dropped": int.from_bytes(packets[-1][:2], "little"),
    }


def silent(library: StandIn, link: UsbLink) -> dict[str, Any]:
    """A device that sends nothing: a timeout, after which the queue is as it was."""
    queue = link.queue_reads(ENDPOINT, SIZE, 32)
    nothing = queue.read(0.02)
    under_way = library.stand_in_under_way()
    library.stand_in_start()
    return {"nothing": nothing, "under_way": under_way, "then": numbers(queue.read(1.0))}


def interrupted(library: StandIn, link: UsbLink) -> dict[str, Any]:
    """Ctrl-C while a transfer is handed over."""

    def pressed(error: Exception) -> Exception:
        raise KeyboardInterrupt

    queue = link.queue_reads(ENDPOINT, SIZE, 32)
    queue._error = pressed
    library.stand_in_start()
    library.stand_in_fail(usb1.TRANSFER_STALL, 3)
    library.stand_in_pass_us(2000)
    seen = numbers(queue.read(0.0))
    try:
        queue.read(0.0)
    except KeyboardInterrupt:
        return {"numbers": seen, "raised": True}
    return {"numbers": seen, "raised": False}


def ctrl_c(library: StandIn, link: UsbLink, times: int) -> dict[str, Any]:
    """At any moment while the main thread reads; each reaches it, and nothing is lost."""
    moments = random.Random(1)
    raised = pressed = 0

    def press(*_: object) -> None:
        nonlocal pressed
        pressed += 1
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGALRM, press)
    queue = link.queue_reads(ENDPOINT, SIZE, 128)
    library.stand_in_start()
    for _ in range(times):
        try:
            # Again after a second: one that does not arrive is then counted, where the loop would never end.
            signal.setitimer(signal.ITIMER_REAL, moments.uniform(0.0002, 0.003), 1.0)
            while True:
                queue.read(0.05)
                link.control_read(0xC0, 1, 0, 0, 4)
        except KeyboardInterrupt:
            raised += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    under_way = library.stand_in_under_way()
    library.stand_in_stop()
    return {"pressed": pressed, "raised": raised, "under_way": under_way}


def claimed(library: StandIn, link: UsbLink) -> dict[str, Any]:
    """A second client looks, and wants it too."""
    try:
        UsbLink(USB_ID)
    except MeterError as error:
        found = scan_usb(USB_ID)
        return {"error": type(error).__name__, "serials": [(d.serial, d.problem) for d in found]}
    return {}


SCENARIOS = {
    f.__name__: f for f in (late, failing, swapped, nobody_reads, silent, interrupted, ctrl_c, claimed)
}


def main(folder: str, name: str, *arguments: str) -> None:
    library = load_stand_in(Path(folder))
    library.stand_in_stop_the_clock()
    threads = threading.active_count()
    link = UsbLink(USB_ID)
    try:
        result = SCENARIOS[name](library, link, *(int(a) for a in arguments))  # type: ignore[operator]
    finally:
        link.close()
        link.close()
    left = [library.stand_in_under_way(), library.stand_in_allocated(), library.stand_in_open()]
    print(json.dumps(result | {"left": left, "threads": threading.active_count() - threads}))


if __name__ == "__main__":
    main(*sys.argv[1:])
