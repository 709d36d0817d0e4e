"""A bench in the guest: emulated instruments on this machine, on the USB bus of the guest's kernel."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from power.emulated import Emulator, EmulatorOptions, in_thread
from tests.kernel.gadgets import Gadget, MonsoonUsb, Wire, arduino_uno, stock_lvpm
from tests.kernel.guest import Done, Guest
from tests.kernel.image import GuestError, Image
from tests.kernel.usbip_server import UsbIpServer

HOST = "10.0.2.2"
ATTACH_S = 30.0


@dataclass(frozen=True, slots=True)
class Instrument:
    """One instrument of the bench.

    Attributes:
        bus_id: On the USB/IP server.
        kind: Of meter.
        serial: As the instrument says it.
        usb: Vendor and product id, as the guest's kernel must see them.
        node: What it is in the guest: a serial port, or nothing.
        low_a, high_a: The two currents of its load, in turn.
        step_a: What its converter makes of them at worst.
        rate_hz: Samples a second, if not the instrument's own.
        pull_after_bytes: How much it has sent when its cable is pulled.
        limits: Words that go with every command.
    """

    bus_id: str
    kind: str
    serial: str
    usb: str
    node: str = ""
    variant: str = ""
    low_a: float = 0.1
    high_a: float = 0.5
    step_a: float = 0.005
    rate_hz: float = 0.0
    pull_after_bytes: int = 80_000
    limits: tuple[str, ...] = ("--voltage", "4", "--voltage-max", "4.2", "--current-limit", "3")

    @property
    def words(self) -> list[str]:
        """How a command names it."""
        named = ["--port", self.node] if self.node else ["--serial", self.serial]
        return ["--kind", self.kind, *named, *self.limits]


HVPM = Instrument("1-1", "monsoon-hvpm", "20123", "2ab9:0001", variant="patient")
REFLASHED = Instrument("1-2", "monsoon-hvpm", "11425", "2ab9:0001", variant="lv,patient")
# At 1 kHz a guest on a busy machine catches up after a pause. At 5 kHz it may not, and what is late for good
# looks to the driver like what a real unit, which keeps 16 ms, has lost.
LVPM = Instrument(
    "1-3", "monsoon-lvpm", "12345", "04d8:fe23", "/dev/ttyACM0", rate_hz=1000, pull_after_bytes=30_000
)
INA219 = Instrument(
    "1-4", "ina219", "UNO-1", "2341:0043", "/dev/ttyACM1", step_a=0.0015, pull_after_bytes=30_000
)
SPARE = Instrument("1-5", "monsoon-hvpm", "20999", "2ab9:0001")
"""Plugged in when a test wants it: a unit with the real one's small buffer, which a slow guest overruns."""

INSTRUMENTS = (HVPM, REFLASHED, LVPM, INA219)


@dataclass(slots=True)
class Bench:
    """Guest, server and instruments."""

    guest: Guest
    server: UsbIpServer
    gadgets: dict[str, Gadget]
    truths: dict[str, Path]
    emulators: dict[str, Emulator]
    facts: dict[str, object] = field(default_factory=dict)

    def meter(self, verb: str, instrument: Instrument, *more: str, uid: int = 0, check: bool = True) -> Done:
        """``joulefleet meter VERB`` in the guest."""
        return self.guest.run("joulefleet", "meter", verb, *instrument.words, *more, uid=uid, check=check)

    def attach(self, instrument: Instrument) -> float:
        """Plug it in; seconds until the guest has it.

        Raises:
            GuestError: The guest's kernel does not take it.
        """
        began = time.monotonic()
        problem = ""
        while time.monotonic() - began < ATTACH_S:
            if not self.server.is_attached(instrument.bus_id):
                words = ["--tcp-port", str(self.server.port), "attach", "-r", HOST, "-b", instrument.bus_id]
                problem = self.guest.run("usbip", *words, check=False).err
            self.guest.run("udevadm", "settle", "--timeout=10", check=False)
            if self._is_ready(instrument):
                return time.monotonic() - began
            time.sleep(0.2)
        raise GuestError(f"the guest does not take {instrument.kind} {instrument.bus_id}: {problem}")

    def unplug(self, instrument: Instrument) -> None:
        """Pull its cable, and wait until the guest knows."""
        self.server.unplug(instrument.bus_id)
        deadline = time.monotonic() + ATTACH_S
        while self._is_ready(instrument) or self.server.is_attached(instrument.bus_id):
            if time.monotonic() > deadline:
                raise GuestError(f"the guest does not notice that {instrument.bus_id} is gone")
            time.sleep(0.2)

    def devices(self) -> list[tuple[str, str]]:
        """Ids and serial strings of the devices on the guest's USB bus, by its kernel."""
        script = (
            "cd /sys/bus/usb/devices; for d in [0-9]*-[0-9]*; do case $d in *:*) ;; *) [ -e $d/idVendor ] &&"
            " echo $(cat $d/idVendor):$(cat $d/idProduct) $(cat $d/serial 2>/dev/null);; esac; done"
        )
        lines = self.guest.run("sh", "-c", script).out.splitlines()
        return sorted((ids, serial) for ids, _, serial in (line.partition(" ") for line in lines))

    def _is_ready(self, instrument: Instrument) -> bool:
        if instrument.node:
            return not self.guest.run("test", "-c", instrument.node, check=False).code
        return (instrument.usb, instrument.serial) in self.devices()


@contextlib.contextmanager
def open_bench(image: Image, folder: Path) -> Iterator[Bench]:
    """Start everything and plug everything in."""
    with contextlib.ExitStack() as stack:
        gadgets: dict[str, Gadget] = {}
        emulators: dict[str, Emulator] = {}
        truths = {}
        for instrument in (*INSTRUMENTS, SPARE):
            truths[instrument.bus_id] = folder / f"truth-{instrument.bus_id}"
            options = EmulatorOptions(
                signal=f"square:low={instrument.low_a},high={instrument.high_a},voltage=4.0,period=0.5",
                serial=instrument.serial,
                rate_hz=instrument.rate_hz,
                variant=instrument.variant,
                truth=truths[instrument.bus_id],
            )
            emulators[instrument.bus_id] = stack.enter_context(wired(instrument.kind, options))
            gadgets[instrument.bus_id] = _gadget(instrument, emulators[instrument.bus_id])
        server = stack.enter_context(UsbIpServer(gadgets))
        guest = stack.enter_context(Guest(image, folder))
        bench = Bench(guest, server, gadgets, truths, emulators)
        # One by one: the order decides which serial port is which.
        took = {instrument.bus_id: round(bench.attach(instrument), 1) for instrument in INSTRUMENTS}
        bench.facts = {**guest.facts, "attach_s": took, "image_built_s": round(image.built_s, 1)}
        yield bench


@contextlib.contextmanager
def wired(kind: str, options: EmulatorOptions) -> Iterator[Emulator]:
    """An emulated instrument in a thread, with a `Wire` in place of its pseudo-terminal, if it has one."""
    with contextlib.ExitStack() as stack:
        for module in ("lvpm", "ina219"):
            stack.enter_context(patch(f"power.emulated.{module}.instrument.PtyPort", Wire))
        emulator = stack.enter_context(in_thread(kind, options))
        yield emulator


def _gadget(instrument: Instrument, emulator: Emulator) -> Gadget:
    if instrument.kind == "monsoon-hvpm":
        return MonsoonUsb(emulator)  # type: ignore[arg-type]  # an EmulatedHvpm is a UsbDevice
    if instrument.kind == "monsoon-lvpm":
        return stock_lvpm(emulator._port)  # type: ignore[attr-defined]
    return arduino_uno(emulator._port, "5573932393735")  # type: ignore[attr-defined]
