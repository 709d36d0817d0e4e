"""Looking for instruments on this machine; no more is asked of one than its serial number on USB."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from joulefleet.errors import JoulefleetError
from power.meters import lvpm_unit
from power.meters.serial_port import PortInfo, scan_ports

USB_ADAPTERS: dict[tuple[int | None, int | None], str] = {
    (0x2341, None): "ina219",  # Arduino
    (0x1A86, None): "ina219",  # WCH CH340 and successors, on most clones and ESP boards
    (0x10C4, 0xEA60): "ina219",  # Silicon Labs CP210x, on ESP32 boards
    (0x0403, None): "ina219",  # FTDI
    (0x303A, None): "ina219",  # Espressif's own USB
}
"""USB ids of the microcontroller boards and adapters that an INA219 may be behind; a guess, not a finding."""


@dataclass(frozen=True, slots=True)
class FoundInstrument:
    """Something that may be an instrument.

    Attributes:
        port: What goes into ``port`` of its configuration; empty for USB, where ``serial`` names it.
        kind: What it is, if that is known; the kind of meter that fits.
        certain: Whether it said so itself; otherwise the kind is a guess from the USB adapter.
        serial: Serial number, if the system knows it or USB gives it.
        problem: Why it cannot be used.
    """

    port: str
    kind: str
    certain: bool
    description: str
    serial: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What was found, and where it was not possible to look."""

    instruments: tuple[FoundInstrument, ...]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """Plain data for ``--json``."""
        return asdict(self)


def scan_instruments() -> ScanResult:
    """The serial ports with a guess what is behind them, and the Monsoons on USB."""
    notes: list[str] = []
    found = [on_serial_port(port) for port in scan_ports()]
    try:
        found += _usb_monsoons()
    except JoulefleetError as error:
        notes.append(f"{error.message} ({error.hint})" if error.hint else error.message)
    return ScanResult(tuple(found), tuple(notes))


def on_serial_port(port: PortInfo) -> FoundInstrument:
    """What may be behind a serial port, by what the system knows of it."""
    is_monsoon = port.description.lower().startswith(lvpm_unit.PORT_DESCRIPTION)
    guess = USB_ADAPTERS.get((port.vid, port.pid)) or USB_ADAPTERS.get((port.vid, None), "")
    kind = lvpm_unit.KIND if is_monsoon else guess
    return FoundInstrument(port.path, kind, is_monsoon, port.description, port.serial)


def _usb_monsoons() -> list[FoundInstrument]:
    from power.meters.hvpm_unit import KIND, USB_ID
    from power.meters.usb.link import scan_usb

    return [
        FoundInstrument("", KIND, certain=True, description=d.location, serial=d.serial, problem=d.problem)
        for d in scan_usb(USB_ID)
    ]
