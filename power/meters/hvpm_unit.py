"""A Monsoon at the other end of a USB cable: its settings, and starting, stopping and reading its stream."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

from joulefleet.errors import MeterBusy, MeterError
from power.meters.usb.link import UsbId, UsbLink
from power.wire import hvpm_control as wire
from power.wire.hvpm_control import HardwareModel, Opcode, Request, RequestType

if TYPE_CHECKING:
    from power.meters.usb.queue import BulkQueue

KIND = "monsoon-hvpm"
USB_ID = UsbId(KIND, wire.VENDOR_ID, wire.PRODUCT_ID, wire.BOOTLOADER_IDS)

QUEUED_READS = 128
"""Transfers under way while it samples. A unit sends up to 5000 packets a second, one observation each, and
keeps 2.6 ms of them: with these a host may be 28 ms late (ADR-0029)."""

DRAIN_READS = 4

READ_TIMEOUT_S = 0.2
DRAIN_TIMEOUT_S = 0.01
DRAIN_LIMIT_S = 1.0


class HvpmUnit:
    """One claimed unit. Stops a stream that a client left running; changes nothing else by itself.

    Args:
        link: The claimed device, which `close` closes.
    """

    def __init__(self, link: UsbLink) -> None:
        self._link = link
        self._reads: BulkQueue | None = None
        self.stop()
        number = self.get(Opcode.HARDWARE_MODEL)
        try:
            self.model = HardwareModel(number)
        except ValueError as error:
            raise MeterError(
                f"{KIND} on {link.location}: unknown hardware model {number}",
                hint="1 (LVPM) and 2 (HVPM) are known; is this a Monsoon?",
            ) from error

    @property
    def location(self) -> str:
        """Where it is plugged in."""
        return self._link.location

    @property
    def emulated(self) -> bool:
        """Whether it is our own emulator."""
        return self._link.emulated

    def get(self, opcode: Opcode) -> int:
        """Read a value; not while sampling."""
        self.require_idle()
        word = self._read_word(opcode)
        # The error word is also a zero offset of -2, so only a unit that says it is sampling is believed.
        if word == wire.ERROR_WORD and self._read_word(Opcode.START_STATUS) & wire.SAMPLING_BIT:
            raise MeterBusy(f"{KIND}: the unit is sampling", hint="another client may be using it")
        return wire.decode_value(opcode, word)

    def write(self, opcode: Opcode, value: int) -> None:
        """Write a value without asking whether it was taken; not while sampling."""
        self.require_idle()
        transfer = wire.encode_set(opcode, value)
        self._link.control_write(
            RequestType.OUT, Request.VALUE, transfer.w_value, transfer.w_index, transfer.data
        )

    def change(self, opcode: Opcode, value: int) -> int:
        """Write a value, read it back, and return it; not while sampling."""
        self.write(opcode, value)
        found = self.get(opcode)
        if found != value:
            raise MeterError(
                f"{KIND}: {opcode.name.lower()} reads {found} after {value} was set",
                hint="another client may be using the unit; power-cycle it",
            )
        return found

    def dac_is_plausible(self) -> bool:
        """Whether the unit passes the vendor's check of its output converter; only the HVPM has it."""
        if self.model is not HardwareModel.HVPM:
            return True
        low, high = self.get(Opcode.DAC_CAL_LOW), self.get(Opcode.DAC_CAL_HIGH)
        return wire.dac_calibration_is_plausible(low, high)

    def facts(self) -> dict[str, str | int | float | bool]:
        """Its settings in SI units."""
        run_time, power_up = self.get(Opcode.RUN_CURRENT_LIMIT), self.get(Opcode.POWER_UP_CURRENT_LIMIT)
        return {
            "hardware_model": int(self.model),
            "output_voltage_v": round(self.get(Opcode.MAIN_VOLTAGE) / wire.VOLT, 6),
            "run_time_current_limit_a": round(wire.current_limit_a(self.model, run_time), 4),
            "power_up_current_limit_a": round(wire.current_limit_a(self.model, power_up), 4),
            "power_up_time_ms": self.get(Opcode.POWER_UP_TIME),
            "temperature_limit_c": wire.temperature_limit_c(self.get(Opcode.TEMPERATURE_LIMIT)),
            "usb_passthrough": self.get(Opcode.USB_PASSTHROUGH),
            "dac_cal_low": self.get(Opcode.DAC_CAL_LOW),
            "dac_cal_high": self.get(Opcode.DAC_CAL_HIGH),
        }

    def start(self, calibration_ms: int, *, transfers: int = QUEUED_READS) -> None:
        """Begin to sample, without end, with the unit's own calibration so often."""
        limit = wire.UNLIMITED_SAMPLES.to_bytes(4, "little")
        reads = self._queue(transfers)  # they wait already when the first packet comes
        self._link.control_write(RequestType.OUT, Request.START, calibration_ms, 0, limit)
        self._reads = reads

    def stop(self) -> None:
        """Stop sampling and throw away what was still on its way."""
        reads, self._reads = self._reads, None
        self._link.control_write(RequestType.OUT, Request.STOP, 0, 0)
        deadline = time.monotonic() + DRAIN_LIMIT_S
        reads = reads or self._queue(DRAIN_READS)
        while reads.read(DRAIN_TIMEOUT_S) and time.monotonic() < deadline:
            pass
        reads.close()

    @property
    def is_sampling(self) -> bool:
        """Whether we have started it."""
        return self._reads is not None

    def read(self) -> list[bytes]:
        """The next packets, perhaps padded; none if none comes for a while, or it does not sample."""
        return self._reads.read(READ_TIMEOUT_S) if self._reads is not None else []

    def close(self) -> None:
        """Release the device; sends nothing. May be called twice."""
        self._link.close()

    def _queue(self, transfers: int) -> BulkQueue:
        return self._link.queue_reads(wire.BULK_IN, wire.BULK_READ_BYTES, transfers)

    def _read_word(self, opcode: Opcode) -> int:
        return wire.decode_word(self._link.control_read(RequestType.IN, Request.VALUE, 0, opcode, 4))

    def require_idle(self) -> None:
        """Refuse what a unit cannot do while it samples."""
        if self.is_sampling:
            raise MeterError(f"{KIND}: busy sampling", hint="stop the stream first")


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
