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
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import usb1

from joulefleet.errors import MeterError
from power.meters.hvpm_unit import USB_ID
from power.meters.usb.link import UsbLink, scan_usb
from power.meters.usb.queue import BulkQueue
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


def events_fail(library: StandIn, link: UsbLink) -> dict[str, Any]:
    """libusb hands over packets and then says that it failed."""
    queue = link.queue_reads(ENDPOINT, SIZE, 32)
    library.stand_in_start()
    library.stand_in_pass_us(2000)
    library.stand_in_fail_events(-4)
    packets, error, _ = read_all(queue)
    library.stand_in_fail_events(0)
    return {"numbers": numbers(packets), "error": error}


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


def presses(times: int, latest_s: float, work: Callable[[], object]) -> tuple[int, int]:
    """Press Ctrl-C once in each turn of some work, at any moment: how many presses, and how many arrived."""
    moments = random.Random(1)
    raised = pressed = 0

    def press(*_: object) -> None:
        nonlocal pressed
        pressed += 1
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGALRM, press)
    for _ in range(times):
        deadline = time.monotonic() + 10
        try:
            signal.setitimer(signal.ITIMER_REAL, moments.uniform(0.00002, latest_s))
            while time.monotonic() < deadline:
                work()
            break  # one that never arrives is missing in the count; the rest would wait as long
        except KeyboardInterrupt:
            raised += 1
    return pressed, raised


def ctrl_c(library: StandIn, link: UsbLink, times: int) -> dict[str, Any]:
    """At any moment while the main thread reads; each reaches it, and nothing is lost."""
    queue = link.queue_reads(ENDPOINT, SIZE, 128)
    library.stand_in_start()

    def work() -> None:
        queue.read(0.05)
        link.control_read(0xC0, 1, 0, 0, 4)

    pressed, raised = presses(times, 0.003, work)
    under_way = library.stand_in_under_way()
    library.stand_in_stop()
    return {"pressed": pressed, "raised": raised, "under_way": under_way}


def ctrl_c_at_the_ends(library: StandIn, link: UsbLink, times: int) -> dict[str, Any]:
    """At any moment while the main thread opens a unit, begins and ends a queue, and closes the unit."""
    link.close()
    library.stand_in_start()
    links = [link]

    def close_all() -> None:
        for one in links:
            if hasattr(one, "_closed"):
                one.close()

    def work() -> None:
        close_all()
        links.append(UsbLink.__new__(UsbLink))  # known before its constructor can be interrupted
        links[-1].__init__(USB_ID)  # type: ignore[misc]
        links[-1].queue_reads(ENDPOINT, SIZE, 32).read(0.0)
        links[-1].queue_reads(ENDPOINT, SIZE, 32).close()
        scan_usb(USB_ID)
        links[:-1] = []

    pressed, raised = presses(times, 0.003, work)
    close_all()
    return {"pressed": pressed, "raised": raised}


def claimed(library: StandIn, link: UsbLink) -> dict[str, Any]:
    """A second client looks, and wants it too."""
    try:
        UsbLink(USB_ID)
    except MeterError as error:
        found = scan_usb(USB_ID)
        return {"error": type(error).__name__, "serials": [(d.serial, d.problem) for d in found]}
    return {}


SCENARIOS = {
    f.__name__: f
    for f in (
        *(late, failing, swapped, nobody_reads, silent, events_fail),
        *(interrupted, ctrl_c, ctrl_c_at_the_ends, claimed),
    )
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
