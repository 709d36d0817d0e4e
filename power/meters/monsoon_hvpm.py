"""Driver of the Monsoon HVPM (black, AAA10F) and of LVPM units reflashed with USB firmware.

What it leaves alone: opening, streaming, closing and dying never change the output voltage, the current
limits or the USB passthrough. Only the methods named after these settings do, and they refuse what the
configuration forbids.

A stream of the main or aux channel needs the USB passthrough to be off, because a phone that charges through
it draws less from the main output. The modes ``off`` and ``auto`` are accepted: with ``auto``, as a unit
comes up, the firmware opens the switch while it samples.
"""

from __future__ import annotations

import contextlib

from pydantic import Field

from joulefleet.config import ClosedModel, validate
from joulefleet.errors import MeterError, UnsafeOutput
from power.meter import MeterConfig, require_no_obstacle
from power.meters.hvpm_unit import (
    KIND,
    USB_ID,
    HvpmUnit,
    restore_switch_interval,
    shorten_switch_interval,
)
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
from power.meters.streaming import StreamingMeter
from power.meters.usb.link import UsbLink
from power.model import Accuracy, InstrumentInfo, RangeAccuracy, Severity
from power.timebase import QUARTZ_TOLERANCE_PPM, RATE_UNSURE_FACT, TOLERANCE_FACT
from power.wire import hvpm_control as wire
from power.wire.hvpm import HvpmDecoder
from power.wire.hvpm_control import HardwareModel, Opcode, UsbPassthrough
from power.wire.hvpm_packets import trim_packet
from power.wire.hvpm_scaling import (
    COARSE_OFFSET_A,
    FINE_OFFSET_A,
    ChannelName,
    ChannelScale,
    channel_scale,
    scale_opcodes,
)

SWITCH_INTERVAL_S = 0.0005
"""How long another thread of this process may keep the reader waiting. Each transfer that is started again
lets go of the interpreter: with Python's own 5 ms the queue runs dry whenever something else computes."""

MAX_CALIBRATION_MS = 5000
"""The unit takes up to 65535, but the first sample comes after five, and a recording waits 30 s for it
(`power.recording.recorder.FIRST_SAMPLE_S`)."""

VOLTAGE_TOLERANCE_V = 0.005
"""Settings agree within half a step of the LVPM's 10 mV; the HVPM's own steps are 1 uV."""


class HvpmOptions(ClosedModel):
    """``options`` of a meter of this kind.

    Attributes:
        calibration_ms: Time between the unit's own calibrations, in samples, whatever its name says. The
            first sample comes after five.
        ignore_dac_check: Let `MonsoonHvpm.set_voltage` work although the unit fails the vendor's DAC check.
        usb_passthrough_off: Switch the USB passthrough off before a stream instead of refusing to start.
    """

    calibration_ms: int = Field(default=wire.DEFAULT_CALIBRATION_MS, strict=True, ge=1, le=MAX_CALIBRATION_MS)
    ignore_dac_check: bool = False
    usb_passthrough_off: bool = False


def open_meter(config: MeterConfig) -> MonsoonHvpm:
    """Open the unit with ``config.serial``, or the only one; ``config.port`` may name an emulated one."""
    options = validate(config.options, HvpmOptions, name=f"{KIND} options")
    link = UsbLink(USB_ID, serial=config.serial, port=config.port)
    try:
        return MonsoonHvpm(config, options, HvpmUnit(link))
    except BaseException:
        link.close()
        raise


def decoder_for(info: InstrumentInfo) -> HvpmDecoder:
    """The decoder of a unit's bytes, for live ones and for those of a recording."""
    model = HardwareModel(int(info.facts["hardware_model"]))
    name = str(info.facts["channel"])
    channel: ChannelName = "usb" if name == "usb" else "aux" if name == "aux" else "main"
    values = {opcode: int(info.facts[opcode.name.lower()]) for opcode in scale_opcodes(model, channel)}
    return HvpmDecoder(channel_scale(model, channel, values))


class MonsoonHvpm(StreamingMeter):
    """A Monsoon on USB. See `power.meter.PowerMeter`.

    Args:
        config: Limits and channel.
        options: The driver's own options.
        unit: The claimed unit, which this object closes.
    """

    def __init__(self, config: MeterConfig, options: HvpmOptions, unit: HvpmUnit) -> None:
        self._unit = unit
        self._options = options
        values = {opcode: unit.get(opcode) for opcode in scale_opcodes(unit.model, config.channel)}
        scale = channel_scale(unit.model, config.channel, values)
        if not scale.coarse.reference_a or not scale.fine.reference_a:
            raise MeterError(
                f"{KIND}: the unit has lost the scale of its channel {scale.channel}",
                hint="restore its calibration with the vendor's software",
            )
        firmware, protocol = unit.get(Opcode.FIRMWARE_VERSION), unit.get(Opcode.PROTOCOL_VERSION)
        info = InstrumentInfo(
            kind=KIND,
            serial=str(unit.get(Opcode.SERIAL_NUMBER)),
            firmware=f"{firmware} (protocol {protocol})",
            hardware=f"{unit.model.name} (model {int(unit.model)})",
            port=unit.location,
            emulated=unit.emulated,
            rate_hz=wire.SAMPLE_RATE_HZ,
            tick_hz=wire.SAMPLE_RATE_HZ,
            uniform_ticks=True,
            accuracy=_accuracy(scale),
            facts={
                "channel": config.channel,
                "calibration_ms": options.calibration_ms,
                TOLERANCE_FACT: QUARTZ_TOLERANCE_PPM + wire.RATE_UNSURE_PPM,
                RATE_UNSURE_FACT: wire.RATE_UNSURE_PPM,
                **unit.facts(),
                **{opcode.name.lower(): value for opcode, value in values.items()},
            },
        )
        super().__init__(config, info, decoder_for(info))
        self._note_settings()

    def output_voltage_v(self) -> float:
        """The voltage that the main output is set to; 0 if it is off. Not while sampling."""
        return self._unit.get(Opcode.MAIN_VOLTAGE) / wire.VOLT

    def output_setting(self) -> OutputSetting:
        """See `power.meters.safety.OutputControl`."""
        set_v = self.output_voltage_v()
        return OutputSetting(set_v, self._current_limits(), on=set_v > 0)

    def obstacles(self) -> tuple[MeterError, ...]:
        """See `power.meter.RefusesSettings`.

        The output is looked at on every channel: whatever is wired to it is what ``voltage_max_v`` is for.
        """
        unsafe = unsafe_output(self.config, self.output_voltage_v(), room_v=VOLTAGE_TOLERANCE_V)
        if self.config.channel == "usb" or self._options.usb_passthrough_off:
            return unsafe
        return (*unsafe, *passthrough_on(self.config, self._unit.get(Opcode.USB_PASSTHROUGH)))

    def set_voltage(self, voltage_v: float) -> float:
        """Switch the main output on at a voltage.

        Returns:
            The voltage as the unit keeps it.

        Raises:
            UnsafeOutput: Above ``voltage_max_v``, outside what the unit can do, or the unit fails the
                vendor's DAC check and the option ``ignore_dac_check`` is not set.
            MeterError: The unit does not confirm it; says what may be on the output.
        """
        self._unit.require_idle()
        require_safe_voltage(self.config, voltage_v)
        limits = wire.MODEL_LIMITS[self._unit.model]
        if not limits.voltage_min_v <= voltage_v <= limits.voltage_max_v:
            raise UnsafeOutput(
                f"{KIND}: {voltage_v:g} V is not within the {limits.voltage_min_v:g} to"
                f" {limits.voltage_max_v:g} V of this model",
                hint="switch_output_off() switches it off",
            )
        if not self._options.ignore_dac_check and not self._unit.dac_is_plausible():
            raise UnsafeOutput(
                f"{KIND}: the unit fails the vendor's DAC check, so its voltage may be wildly wrong",
                hint="measure the output without a device; if it is right, set ignore_dac_check = true",
            )

        def change() -> float:
            self._unit.write(Opcode.MAIN_VOLTAGE, wire.voltage_word(voltage_v))
            return self.output_voltage_v()

        return confirmed_voltage(
            self.config,
            voltage_v,
            step_v=VOLTAGE_TOLERANCE_V,
            change=change,
            switch_off=self.switch_output_off,
        )

    def switch_output_off(self) -> None:
        """Cut the device's supply."""
        self._unit.change(Opcode.MAIN_VOLTAGE, 0)

    def current_limit_range_a(self) -> tuple[float, float]:
        """See `power.meters.safety.OutputControl`."""
        return wire.current_limit_step_a(self._unit.model), wire.MODEL_LIMITS[self._unit.model].current_max_a

    def set_current_limits(self, *, run_time_a: float, power_up_a: float) -> CurrentLimits:
        """Set the currents at which the unit cuts the output, to the next step at or below them.

        Returns:
            What the unit reports afterwards.

        Raises:
            UnsafeOutput: Above ``current_limit_a``, or outside what the unit can do.
        """
        model = self._unit.model
        for limit_a in (run_time_a, power_up_a):
            require_safe_current_limit(self.config, limit_a, self.current_limit_range_a())
        opcodes = Opcode.RUN_CURRENT_LIMIT, Opcode.POWER_UP_CURRENT_LIMIT
        before = [self._unit.get(opcode) for opcode in opcodes]
        wanted = [wire.current_limit_raw(model, limit_a) for limit_a in (run_time_a, power_up_a)]

        def change(values: list[int]) -> CurrentLimits:
            for opcode, value in zip(opcodes, values, strict=True):
                self._unit.write(opcode, value)
            return self._current_limits()

        old = CurrentLimits(*(wire.current_limit_a(model, value) for value in before))
        return limits_or_old(lambda: change(wanted), old, lambda: change(before))

    def _current_limits(self) -> CurrentLimits:
        model = self._unit.model
        return CurrentLimits(
            run_time_a=wire.current_limit_a(model, self._unit.get(Opcode.RUN_CURRENT_LIMIT)),
            power_up_a=wire.current_limit_a(model, self._unit.get(Opcode.POWER_UP_CURRENT_LIMIT)),
        )

    def set_usb_passthrough(self, mode: UsbPassthrough) -> None:
        """Connect or disconnect the USB port at the front."""
        self._unit.change(Opcode.USB_PASSTHROUGH, mode)

    def begin_sampling(self) -> None:
        """See `StreamingMeter`; checks first that the reading will mean what it says."""
        require_no_obstacle(self.obstacles())
        if self._options.usb_passthrough_off and self.config.channel != "usb":
            self._switch_passthrough_off()
        self._select_voltage()
        shorten_switch_interval(SWITCH_INTERVAL_S)
        try:
            self._unit.start(self._options.calibration_ms)
        except BaseException:
            restore_switch_interval()
            raise

    def end_sampling(self) -> None:
        """See `StreamingMeter`."""
        restore_switch_interval()
        self._unit.stop()

    def read_bytes(self) -> bytes:
        """See `StreamingMeter`."""
        packets = [trim_packet(read) for read in self._unit.read()]
        if broken := packets.count(b""):
            # No error: the decoder misses the packet and counts its samples as lost, where they were.
            self._own_findings.add(
                "broken_read",
                Severity.WARNING,
                "USB reads that are no whole packet were left out",
                count=broken,
            )
        return b"".join(packets)

    def close(self) -> None:
        """See `StreamingMeter`."""
        if self._unit.is_sampling:
            with contextlib.suppress(MeterError):
                self._unit.stop()
        self._unit.close()

    def _switch_passthrough_off(self) -> None:
        if passthrough_on(self.config, self._unit.get(Opcode.USB_PASSTHROUGH)):
            self.set_usb_passthrough(UsbPassthrough.OFF)

    def _select_voltage(self) -> None:
        """Let the observations carry the voltage of the channel that is read; this is no output."""
        is_aux = self.config.channel == "aux"
        wanted = wire.VoltageChannel.MAIN_AND_AUX if is_aux else wire.VoltageChannel.MAIN_AND_USB
        if self._unit.get(Opcode.VOLTAGE_CHANNEL) != wanted:
            self._unit.change(Opcode.VOLTAGE_CHANNEL, wanted)
        if is_aux:
            self._own_findings.add(
                "aux_voltage",
                Severity.WARNING,
                "no source states the scale of the aux voltage: it is taken to be that of main",
            )

    def _note_settings(self) -> None:
        """Say where the unit is not as the configuration expects; change nothing."""
        if not self._unit.dac_is_plausible():
            self._own_findings.add(
                "dac_calibration",
                Severity.WARNING,
                "the unit fails the vendor's DAC check: a voltage that is set may come out wildly wrong",
            )
        if self.config.channel == "main":
            note_settings(
                self._own_findings,
                self.config,
                self.output_voltage_v(),
                float(self.info.facts["run_time_current_limit_a"]),
                tolerance_v=VOLTAGE_TOLERANCE_V,
            )


def _accuracy(scale: ChannelScale) -> Accuracy:
    return Accuracy(
        # The reference current is the highest at which the fine range is known to be calibrated.
        current=(
            RangeAccuracy(
                name="fine",
                up_to_a=scale.fine.reference_a,
                gain_rel=0.02,
                offset_a=FINE_OFFSET_A,
                step_a=scale.step_a(scale.fine.reference_a),
            ),
            RangeAccuracy(
                name="coarse",
                gain_rel=0.02,
                offset_a=COARSE_OFFSET_A,
                step_a=scale.step_a(scale.coarse.reference_a),
            ),
        ),
        voltage_gain_rel=0.01,
        voltage_offset_v=0.01,
        voltage_step_v=scale.volts_per_count,
        source="assumption, chosen wide: no published accuracy of the HVPM was at hand;"
        " `joulefleet meter calibrate` narrows it",
    )
