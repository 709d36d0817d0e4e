"""Driver of the INA219 with our sketch (``device_agents/firmware/ina219``).

The INA219 has no output: it only looks on. Nothing can be set, so the device's limits are compared with
the readings, as in every recording (`power.recording.checks`), and with what this chip and shunt can measure.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from joulefleet.config import ClosedModel, validate
from joulefleet.errors import (
    ConfigError,
    MeterDisconnected,
    MeterError,
    MeterNotFound,
    MeterProtocolError,
    UnsafeOutput,
)
from power.meter import MeterConfig
from power.meters.ina219_link import ClockReading, Ina219Link
from power.meters.serial_port import SerialPort, is_real_serial
from power.meters.streaming import StreamingMeter
from power.model import Accuracy, InstrumentInfo, RangeAccuracy, Severity
from power.wire.ina219.decoder import Ina219Decoder, SyncEdge
from power.wire.ina219.frames import EMULATED_FIRMWARE, RUN, STOP, Header
from power.wire.ina219.registers import (
    ABSOLUTE_MAX_V,
    BUS_LSB_V,
    MODE_SHUNT_AND_BUS_CONTINUOUS,
    SHUNT_LSB_V,
    Config,
)

Grade = Literal["A", "B"]

# Texas Instruments SBOS448G section 7.5, maxima: over -25 to 85 degC where the sheet states them so.
_CURRENT_ERROR_REL = {"A": 0.010, "B": 0.005}
_OFFSET_V = {
    "A": {1: 100e-6, 2: 125e-6, 4: 150e-6, 8: 200e-6},
    "B": {1: 50e-6, 2: 75e-6, 4: 75e-6, 8: 100e-6},
}
_BUS_ERROR_REL = 0.010


def ina219_accuracy(grade: Grade, settings: Config, shunt_ohm: float, shunt_tolerance: float) -> Accuracy:
    """What the data sheet and the shunt's tolerance allow; independent limits are combined in quadrature.

    The steps are the registers' (the average of several conversions has no finer one), or wider where a
    conversion has fewer than 12 bits. The data sheet states no offset of the bus voltage but its step.

    Args:
        grade: Of the chip.
        settings: Its configuration register.
        shunt_ohm: Shunt resistance.
        shunt_tolerance: Its relative tolerance.
    """
    pga = settings.pga
    step_v = SHUNT_LSB_V * settings.shunt_adc.step_lsb
    current = RangeAccuracy(
        name=f"pga/{pga}",
        gain_rel=math.hypot(_CURRENT_ERROR_REL[grade], shunt_tolerance),
        offset_a=_OFFSET_V[grade][pga] / shunt_ohm,
        step_a=step_v / shunt_ohm,
    )
    bus_step_v = BUS_LSB_V * settings.bus_adc.step_lsb
    return Accuracy(
        current=(current,),
        voltage_gain_rel=_BUS_ERROR_REL,
        voltage_offset_v=0.0,
        voltage_step_v=bus_step_v,
        source=f"TI SBOS448G 7.5, INA219{grade}, maxima over temperature, PGA/{pga};"
        f" shunt {shunt_ohm:g} ohm, tolerance {shunt_tolerance:.2%};"
        f" steps of {step_v * 1e6:g} uV and {bus_step_v * 1e3:g} mV",
    )


DEFAULT_BAUD = 500_000
"""Exact on a 16 MHz AVR, where 230400 is 3.5 % off (ATmega328P data sheet, table of UBRR settings)."""

RUN_TRIES = 3


class Ina219Options(ClosedModel):
    """``options`` of a meter of this kind.

    Attributes:
        baud: Bits per second, as in the sketch.
    """

    baud: int = Field(default=DEFAULT_BAUD, gt=0)


def check_config(config: MeterConfig) -> None:
    """What holds for every way to read an INA219.

    Raises:
        ConfigError: There is no such channel.
        MeterNotFound: No port is given.
        UnsafeOutput: The chip would not survive the device's supply.
    """
    if config.channel != "main":
        raise ConfigError(f"{config.kind}: no channel {config.channel!r}", hint="an INA219 has 'main' only")
    if config.voltage_max_v > ABSOLUTE_MAX_V:
        raise UnsafeOutput(
            f"{config.kind}: voltage_max_v {config.voltage_max_v:g} V is above the {ABSOLUTE_MAX_V:g} V"
            " that an INA219 stands",
            hint="lower voltage_max_v, or use another meter",
        )
    if not config.port:
        raise MeterNotFound(
            f"{config.kind}: no port given, and a USB-serial adapter does not tell what is behind it",
            hint="set port; `joulefleet meter scan` lists the ports",
        )


class Ina219(StreamingMeter):
    """An INA219 behind a microcontroller. Made by `open_meter`."""

    def __init__(
        self,
        config: MeterConfig,
        port: SerialPort,
        link: Ina219Link,
        header: Header,
        clock: ClockReading,
    ) -> None:
        self._ina219_decoder = Ina219Decoder()
        super().__init__(config, _info(port.path, header, clock), self._ina219_decoder)
        self._port = port
        self._link = link
        self._header = header
        self._first_bytes = b""
        self._check_ranges()

    @property
    def sync_edges(self) -> tuple[SyncEdge, ...]:
        """The latest changes of the sync input, on the microcontroller's clock."""
        return self._ina219_decoder.sync_edges

    @property
    def complete_after_ticks(self) -> int:
        """A reading is sent after the bus conversion that follows it."""
        return self._header.settings.stamp_after_middle_us

    def begin_sampling(self) -> None:
        """Start a run; its header is the first thing that is kept."""
        known_run = self._header.run
        for _ in range(RUN_TRIES):
            answer = self._link.ask(RUN, Header, lambda header: header.run != known_run)
            if answer is None:
                self._link.stop()  # or the header of this run might be taken for that of the next
                continue
            changes = {"run", "t_us"}
            if answer.frame.model_dump(exclude=changes) != self._header.model_dump(exclude=changes):
                raise MeterProtocolError(
                    f"ina219 on {self._port.path}: another sketch than a moment ago", hint="open it again"
                )
            self._first_bytes = answer.data
            return
        raise MeterProtocolError(
            f"ina219 on {self._port.path}: does not start sampling", hint="press the board's reset button"
        )

    def end_sampling(self) -> None:
        """Stop the run."""
        self._port.write(STOP)

    def read_bytes(self) -> bytes:
        """What has arrived."""
        if self._ina219_decoder.restarted:
            raise MeterDisconnected(
                f"ina219 on {self._port.path}: the microcontroller restarted in the middle of a run",
                hint="power it from another supply than the device under test",
            )
        if self._ina219_decoder.chip_is_silent:
            raise MeterError(
                f"ina219 on {self._port.path}: the board answers, but its INA219 at address"
                f" 0x{self._header.addr:02X} does not",
                hint="check the wires SDA, SCL, VCC and GND, and the address set by A0 and A1",
            )
        if self._first_bytes:
            first, self._first_bytes = self._first_bytes, b""
            return first
        return self._port.read_available()

    def close(self) -> None:
        """Release the port."""
        self._port.close()

    def _check_ranges(self) -> None:
        settings = self._header.settings
        full_scale_a = settings.shunt_full_scale_v / self._header.shunt_ohm
        if full_scale_a < self.config.current_limit_a:
            self._own_findings.add(
                "range_below_limit", Severity.WARNING, f"the current range ends at {full_scale_a:.3g} A"
            )
        if settings.bus_range_v < self.config.voltage_max_v:
            self._own_findings.add(
                "range_below_limit", Severity.WARNING, f"the bus range ends at {settings.bus_range_v} V"
            )


def open_meter(config: MeterConfig) -> Ina219:
    """Open the port, shake hands, read the clock. Sampling starts with `Ina219.stream`."""
    options = validate(config.options, Ina219Options, name=f"{config.kind} options")
    check_config(config)
    port = SerialPort(config.port, baud=options.baud, kind=config.kind)
    try:
        link = Ina219Link(port, options.baud)
        header = link.shake_hands()
        _check_header(config, header)
        return Ina219(config, port, link, header, link.read_clock())
    except BaseException:
        port.close()
        raise


def _check_header(config: MeterConfig, header: Header) -> None:
    where = f"{config.kind} on {config.port}"
    if config.serial and config.serial != header.uid:
        raise MeterNotFound(
            f"{where}: its serial number is {header.uid!r}, not {config.serial!r}",
            hint="is the right board on this port?",
        )
    settings = header.settings
    if settings.mode != MODE_SHUNT_AND_BUS_CONTINUOUS:
        raise MeterError(
            f"{where}: chip mode {settings.mode} does not convert shunt and bus continuously",
            hint="set mode 7 in the sketch",
        )
    # The chip may be 10 % slow (SBOS448G 7.5); a nominal period further off is a mistake in the sketch.
    if not 0.85 <= header.period_us / settings.pair_us <= 1.15:
        raise MeterError(
            f"{where}: period_us {header.period_us} does not fit its configuration"
            f" (one conversion of shunt and bus takes {settings.pair_us} us)",
            hint="correct period_us or config in the sketch",
        )


def _info(port: str, header: Header, clock: ClockReading) -> InstrumentInfo:
    settings = header.settings
    tolerance = header.rshunt_tol_ppm / 1e6
    return InstrumentInfo(
        kind="ina219",
        serial=header.uid,
        firmware=header.fw,
        hardware=f"INA219{header.grade}",
        port=port,
        emulated=header.fw == EMULATED_FIRMWARE or not is_real_serial(port),
        rate_hz=1e6 / header.period_us,
        tick_hz=float(header.clock_hz),
        uniform_ticks=False,
        accuracy=ina219_accuracy(header.grade, settings, header.shunt_ohm, tolerance),
        facts={
            "voltage_at": "bus (IN- to ground, the device's side); the source has current x shunt more",
            "shunt_ohm": header.shunt_ohm,
            "shunt_tolerance": tolerance,
            "config": f"0x{header.config:04X}",
            "calibration": header.cal,
            "i2c_address": f"0x{header.addr:02X}",
            "period_us": header.period_us,
            "averaged_over_us": settings.shunt_adc.conversion_us,
            "stamp_after_middle_us": settings.stamp_after_middle_us,
            "clock_host_ns": clock.host_ns,
            "clock_mcu_us": clock.mcu_us,
            "clock_uncertainty_ns": clock.uncertainty_ns,
            "clock_pings": clock.pings,
        },
    )
