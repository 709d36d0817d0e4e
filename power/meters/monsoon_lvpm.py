"""Driver of the Monsoon LVPM (white, FTA22D) with stock firmware, over its serial port.

What it leaves alone: opening, streaming, closing and dying never change the output voltage, the current
limits or the USB passthrough. Only the methods named after these settings do, and they refuse what the
configuration forbids.

Each command is one frame in one write, and the next one waits for its answer: of several frames in one write
the firmware takes the first only.

A stream needs the USB passthrough to be off, because a phone that charges through it draws less from the main
output. The modes ``off`` and ``auto`` are accepted: with ``auto``, as the instrument comes up, the firmware
opens the switch while it samples.
"""

from __future__ import annotations

from typing import Literal

from joulefleet.config import ClosedModel, validate
from joulefleet.errors import ConfigError, MeterError, UnsafeOutput
from power.meter import MeterConfig, require_no_obstacle
from power.meters.lvpm_unit import KIND, STATUS_ATTEMPTS, command, open_unit, stop
from power.meters.safety import (
    CurrentLimits,
    OutputSetting,
    confirmed_voltage,
    limits_or_old,
    note_settings,
    passthrough_on,
    require_safe_current_limit,
    require_safe_voltage,
    unsafe_output,
)
from power.meters.serial_port import is_real_serial
from power.meters.streaming import StreamingMeter
from power.model import Accuracy, InstrumentInfo, RangeAccuracy, Severity
from power.timebase import QUARTZ_TOLERANCE_PPM, TOLERANCE_FACT
from power.wire import lvpm_frames as wire
from power.wire.hvpm_control import UsbPassthrough
from power.wire.hvpm_scaling import REFERENCE_SHARE
from power.wire.lvpm import LvpmDecoder
from power.wire.lvpm_calibration import COARSE_NOISE_A, FINE_NOISE_A

GAIN_REL = 0.02
"""An assumption, chosen wide: no published accuracy of the LVPM was at hand."""


def accuracy(used_a: tuple[float, float], other_a: tuple[float, float], voltage_count_v: float) -> Accuracy:
    """How far currents may be off. Until a calibration decides, the other scaling is as good as the one used.

    Args:
        used_a: Reference currents of the fine and of the coarse range.
        other_a: The same by the other scaling.
        voltage_count_v: Volts per count.
    """
    # The lowest bit of a current and the two lowest of a voltage are no part of it.
    fine_step_a, coarse_step_a = (2 * reference / (REFERENCE_SHARE * 0x7FFF) for reference in used_a)
    # The reference current is the highest at which the fine range is known to be calibrated.
    fine, coarse = (GAIN_REL + abs(other / used - 1) for used, other in zip(used_a, other_a, strict=True))
    return Accuracy(
        current=(
            RangeAccuracy(
                name="fine", up_to_a=used_a[0], gain_rel=fine, offset_a=FINE_NOISE_A, step_a=fine_step_a
            ),
            RangeAccuracy(name="coarse", gain_rel=coarse, offset_a=COARSE_NOISE_A, step_a=coarse_step_a),
        ),
        voltage_gain_rel=0.01,
        voltage_offset_v=0.01,
        voltage_step_v=4 * voltage_count_v,
        source="assumption, chosen wide: no published accuracy of the LVPM was at hand, and its two known"
        f" scalings differ by {abs(other_a[0] / used_a[0] - 1):.1%} (fine) and"
        f" {abs(other_a[1] / used_a[1] - 1):.1%} (coarse);"
        " `joulefleet meter calibrate` narrows it",
    )


class LvpmOptions(ClosedModel):
    """``options`` of a meter of this kind.

    Attributes:
        usb_passthrough_off: Switch the USB passthrough off before a stream instead of refusing to start.
        scale: What the instrument's reference reading stands for: the fixed currents of every client of stock
            units (``stock``), or the vendor's for units with the USB firmware, by the resistors that the
            instrument reports (``resistors``).
    """

    usb_passthrough_off: bool = False
    scale: Literal["stock", "resistors"] = "stock"


def open_meter(config: MeterConfig) -> MonsoonLvpm:
    """Open the instrument on ``config.port``, or the one that is found if that is empty."""
    return MonsoonLvpm(config)


def decoder_for(info: InstrumentInfo) -> LvpmDecoder:
    """The decoder of an instrument's bytes, for live ones and for those of a recording."""
    return LvpmDecoder(
        voltage_step_v=float(info.facts["voltage_step_v"]),
        rate_hz=info.rate_hz,
        references_a=(
            float(info.facts.get("fine_reference_a", wire.FINE_REFERENCE_A)),
            float(info.facts.get("coarse_reference_a", wire.COARSE_REFERENCE_A)),
        ),
    )


class MonsoonLvpm(StreamingMeter):
    """A Monsoon LVPM. See `power.meter.PowerMeter`."""

    def __init__(self, config: MeterConfig) -> None:
        self._options = _options(config)
        self._port, status = open_unit(config)
        self._sampling = False
        by_resistors = self._options.scale == "resistors"
        used_a = status.references_a(by_resistors=by_resistors)
        info = InstrumentInfo(
            kind=KIND,
            serial=str(status.serial_number),
            firmware=f"{status.raw['firmwareVersion']} (protocol {status.raw['protocolVersion']})",
            hardware=f"revision {status.raw['hardwareRevision']}",
            port=self._port.path,
            emulated=status.emulated or not is_real_serial(self._port.path),
            rate_hz=status.rate_hz,
            tick_hz=status.rate_hz,
            uniform_ticks=True,
            accuracy=accuracy(
                used_a, status.references_a(by_resistors=not by_resistors), status.voltage_step_v
            ),
            facts={
                **status.facts(),
                "scale": self._options.scale,
                "fine_reference_a": used_a[0],
                "coarse_reference_a": used_a[1],
                TOLERANCE_FACT: QUARTZ_TOLERANCE_PPM,
            },
        )
        self._stream_decoder = decoder_for(info)
        super().__init__(config, info, self._stream_decoder)

    def status(self) -> wire.Status:
        """Ask the instrument for its settings; not while it samples."""
        self._require_idle()
        return command(self._port, wire.GET_STATUS, attempts=STATUS_ATTEMPTS)

    def output_setting(self) -> OutputSetting:
        """See `power.meters.safety.OutputControl`."""
        return _output_setting(self.status())

    def obstacles(self) -> tuple[MeterError, ...]:
        """See `power.meter.RefusesSettings`."""
        return self._obstacles(self.status())

    def _obstacles(self, status: wire.Status) -> tuple[MeterError, ...]:
        output = _output_setting(status)
        unsafe = unsafe_output(self.config, output.voltage_v, room_v=1e-6) if output.on else ()
        if self._options.usb_passthrough_off:
            return unsafe
        return (*unsafe, *passthrough_on(self.config, status.usb_passthrough))

    def set_voltage(self, voltage_v: float) -> float:
        """Switch the output on at a voltage.

        Returns:
            The voltage that was set: the instrument's next step at or below ``voltage_v``.

        Raises:
            UnsafeOutput: Above ``voltage_max_v``, or outside what the instrument can do.
            MeterError: The instrument does not confirm it; says what may be on the output.
        """
        require_safe_voltage(self.config, voltage_v)
        try:
            code = wire.voltage_code(voltage_v)
        except ValueError as error:
            raise UnsafeOutput(f"{KIND}: {error}") from error
        self._require_idle()

        def change() -> float:
            return command(self._port, wire.set_voltage(code)).output_setting_v

        return confirmed_voltage(
            self.config,
            wire.setting_v(code),
            step_v=wire.VOLTAGE_SETTING_STEP_V,
            change=change,
            switch_off=self.switch_output_off,
        )

    def switch_output_off(self) -> None:
        """Cut the device's supply. The instrument keeps the voltage setting for the next time."""
        self._require_idle()
        command(self._port, wire.set_voltage(0))

    def current_limit_range_a(self) -> tuple[float, float]:
        """See `power.meters.safety.OutputControl`."""
        return wire.CURRENT_LIMIT_STEP_A, wire.CURRENT_LIMIT_MAX_A

    def set_current_limits(self, *, run_time_a: float, power_up_a: float) -> CurrentLimits:
        """Set the currents at which the instrument cuts the output, to the next step at or below them.

        Returns:
            What the instrument reports afterwards.

        Raises:
            UnsafeOutput: Above ``current_limit_a``, or outside what the instrument can do.
        """
        for limit_a in (run_time_a, power_up_a):
            require_safe_current_limit(self.config, limit_a, self.current_limit_range_a())
        run_time, power_up = wire.current_limit_code(run_time_a), wire.current_limit_code(power_up_a)
        self._require_idle()
        before = self.status()
        old_codes = before.raw["runTimeCurrentLimit"], before.raw["powerUpCurrentLimit"]

        def restore() -> CurrentLimits:
            self._port.drain_input()  # a late answer to what has failed would be taken for the next
            self._change_limits(self.status(), *old_codes)
            self._port.drain_input()
            return self.output_setting().limits

        old = _output_setting(before).limits
        return limits_or_old(lambda: self._change_limits(before, run_time, power_up), old, restore)

    def _change_limits(self, status: wire.Status, run_time: int, power_up: int) -> CurrentLimits:
        frames = wire.set_limit(wire.Limit.RUN_TIME, status.raw["runTimeCurrentLimit"], run_time)
        frames += wire.set_limit(wire.Limit.POWER_UP, status.raw["powerUpCurrentLimit"], power_up)
        for frame in frames:
            status = command(self._port, frame)
        return _output_setting(status).limits

    def set_usb_passthrough(self, mode: UsbPassthrough) -> None:
        """Connect or disconnect the USB port at the front."""
        self._require_idle()
        found = command(self._port, wire.set_usb_passthrough(mode)).usb_passthrough
        if found != mode:
            raise MeterError(
                f"{KIND}: the USB passthrough reads {found} after {int(mode)} was set",
                hint="another client may be using the instrument; power-cycle it",
            )

    def begin_sampling(self) -> None:
        """See `StreamingMeter`; checks first that the reading will mean what it says."""
        status = self.status()
        require_no_obstacle(self._obstacles(status))
        if passthrough_on(self.config, status.usb_passthrough):
            self.set_usb_passthrough(UsbPassthrough.OFF)
        if wire.StatusBit.OUTPUT_OFF in status.bits:
            self._own_findings.add("output_off", Severity.WARNING, "the instrument's output is off")
        note_settings(
            self._own_findings,
            self.config,
            status.output_setting_v,
            status.run_time_limit_a,
            tolerance_v=0.0051,  # half a step of the setting
        )
        command(self._port, wire.PREPARE)
        self._port.write(wire.START)  # answered by the stream itself
        self._sampling = True

    def end_sampling(self) -> None:
        """See `StreamingMeter`."""
        stop(self._port)
        self._sampling = False

    def read_bytes(self) -> bytes:
        """See `StreamingMeter`.

        Raises:
            MeterError: The instrument has ended the stream by itself.
        """
        data = self._port.read_available()
        if not data and self._stream_decoder.ended:
            raise MeterError(
                f"{KIND}: {self._stream_decoder.ended}",
                hint="look for what draws the current, then switch the output on again",
            )
        return data

    def close(self) -> None:
        """See `StreamingMeter`."""
        self._port.close()

    def _require_idle(self) -> None:
        if self._sampling:
            raise MeterError(f"{KIND}: busy sampling", hint="stop the stream first")


def _output_setting(status: wire.Status) -> OutputSetting:
    limits = CurrentLimits(status.run_time_limit_a, status.power_up_limit_a)
    return OutputSetting(status.output_setting_v, limits, on=wire.StatusBit.OUTPUT_OFF not in status.bits)


def _options(config: MeterConfig) -> LvpmOptions:
    if config.channel != "main":
        raise ConfigError(
            f"{KIND}: channel {config.channel!r} has no voltage in this protocol, so no power",
            hint='use channel = "main"',
        )
    return validate(config.options, LvpmOptions, name=f"{KIND} options")
