"""A Monsoon at the other end of a USB cable: its settings, and starting, stopping and reading its stream."""

from __future__ import annotations

import time

from joulefleet.errors import MeterBusy, MeterError
from power.meters.usb_link import UsbId, UsbLink
from power.wire import hvpm_control as wire
from power.wire.hvpm_control import HardwareModel, Opcode, Request, RequestType

KIND = "monsoon-hvpm"
USB_ID = UsbId(KIND, wire.VENDOR_ID, wire.PRODUCT_ID, wire.BOOTLOADER_IDS)

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
        self._sampling = False
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

    def start(self, calibration_ms: int) -> None:
        """Begin to sample, without end, with the unit's own calibration so often."""
        limit = wire.UNLIMITED_SAMPLES.to_bytes(4, "little")
        self._link.control_write(RequestType.OUT, Request.START, calibration_ms, 0, limit)
        self._sampling = True

    def stop(self) -> None:
        """Stop sampling and throw away what was still on its way."""
        self._sampling = False
        self._link.control_write(RequestType.OUT, Request.STOP, 0, 0)
        deadline = time.monotonic() + DRAIN_LIMIT_S
        while self._read(DRAIN_TIMEOUT_S) and time.monotonic() < deadline:
            pass

    @property
    def is_sampling(self) -> bool:
        """Whether we have started it."""
        return self._sampling

    def read(self) -> bytes:
        """The next packet, perhaps padded; ``b""`` if none comes for a while."""
        return self._read(READ_TIMEOUT_S)

    def close(self) -> None:
        """Release the device; sends nothing. May be called twice."""
        self._link.close()

    def _read(self, timeout_s: float) -> bytes:
        return self._link.bulk_read(wire.BULK_IN, wire.BULK_READ_BYTES, timeout_s)

    def _read_word(self, opcode: Opcode) -> int:
        return wire.decode_word(self._link.control_read(RequestType.IN, Request.VALUE, 0, opcode, 4))

    def require_idle(self) -> None:
        """Refuse what a unit cannot do while it samples."""
        if self._sampling:
            raise MeterError(f"{KIND}: busy sampling", hint="stop the stream first")
