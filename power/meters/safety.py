"""Safety of real hardware: an output changes only when it is asked for by name, and within the limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from joulefleet.errors import MeterError, UnsafeOutput
from power.meter import MeterConfig
from power.model import FindingLog, Severity
from power.wire.hvpm_control import UsbPassthrough

_FLOAT_ROOM = 1e-6
"""A limit that an instrument reports is computed from its steps, so the last digits are not its own."""


@dataclass(frozen=True, slots=True)
class CurrentLimits:
    """The currents at which an instrument cuts its output, as it reports them.

    Attributes:
        run_time_a: Once the output is up.
        power_up_a: In the first milliseconds after it is switched on.
    """

    run_time_a: float
    power_up_a: float


@dataclass(frozen=True, slots=True)
class OutputSetting:
    """What an output is set to: its voltage, where the instrument cuts it, and whether it is on."""

    voltage_v: float
    limits: CurrentLimits
    on: bool = True


@runtime_checkable
class OutputControl(Protocol):
    """A meter that also supplies the device. Nothing but an explicit request calls these."""

    def output_setting(self) -> OutputSetting:
        """Ask the instrument what its output is set to."""

    def current_limit_range_a(self) -> tuple[float, float]:
        """The lowest current limit other than none at all, and the highest, that it can be set to."""

    def set_current_limits(self, *, run_time_a: float, power_up_a: float) -> CurrentLimits:
        """Say at which currents the instrument must cut the output; returns what it then reports."""

    def set_voltage(self, voltage_v: float) -> float:
        """Switch the output on at a voltage, at most ``voltage_max_v``; returns what was set."""

    def switch_output_off(self) -> None:
        """Cut the device's supply."""


def switch_output_on(meter: OutputControl, config: MeterConfig, voltage_v: float) -> OutputSetting:
    """Give the instrument the device's current limit, then put the voltage on its output.

    The limit holds for the power-up as well: it is what the device may draw, at any time.

    Raises:
        UnsafeOutput: The voltage is above ``voltage_max_v``, or the instrument keeps a current limit above
            ``current_limit_a``; the output is then as it was.
    """
    require_safe_voltage(config, voltage_v)
    limit_a = min(config.current_limit_a, meter.current_limit_range_a()[1])
    limits = meter.set_current_limits(run_time_a=limit_a, power_up_a=limit_a)
    for name, kept_a in (("run-time", limits.run_time_a), ("power-up", limits.power_up_a)):
        if not kept_a <= config.current_limit_a + _FLOAT_ROOM:
            raise UnsafeOutput(
                f"{config.kind}: its {name} limit stays at {kept_a:.3f} A, above current_limit_a"
                f" {config.current_limit_a:g}; the output was left as it was",
                hint="another client may be using the instrument; power-cycle it",
            )
    return OutputSetting(meter.set_voltage(voltage_v), limits)


def limits_or_old(
    change: Callable[[], CurrentLimits], old: CurrentLimits, restore: Callable[[], CurrentLimits]
) -> CurrentLimits:
    """Change current limits; where that fails half-way, put the old ones back.

    Args:
        change: Sets both limits and asks the instrument what they are then.
        old: What they were before.
        restore: Sets the old ones again, and asks.

    Raises:
        MeterError: It failed; says which limits hold, or what they were if the instrument does not answer.
    """
    try:
        return change()
    except MeterError as error:
        try:
            now = restore()
        except MeterError:
            raise type(error)(
                f"{error.message}; which current limits it has now is not known, they were {_amperes(old)}",
                hint="power-cycle it, then look with `joulefleet meter info`; the output was left as it was",
            ) from error
        kept = "the old current limits hold again" if now == old else "its current limits are now"
        raise type(error)(
            f"{error.message}; {kept}: {_amperes(now)}", hint="set them again; the output was left as it was"
        ) from error


def _amperes(limits: CurrentLimits) -> str:
    return f"{limits.run_time_a:.3f} A at run time and {limits.power_up_a:.3f} A at power-up"


def confirmed_voltage(
    config: MeterConfig,
    wanted_v: float,
    *,
    step_v: float,
    change: Callable[[], float],
    switch_off: Callable[[], None],
) -> float:
    """Set a voltage and make sure of it; whoever reads the error may have a phone connected.

    Args:
        config: The limits.
        wanted_v: What is set.
        step_v: The instrument's resolution: a difference of one step is rounding.
        change: Sets it, and asks the instrument what it is then.
        switch_off: Cuts the output, which is done only where it is above ``voltage_max_v``.

    Returns:
        The voltage that the instrument reports.

    Raises:
        MeterError: It does not answer, or reports another voltage; says what may be on the output.
    """
    try:
        found_v = change()
    except MeterError as error:
        raise MeterError(
            f"{error.message}; the output may be on at {wanted_v:.3f} V", hint=_look_hint(error.hint)
        ) from error
    above = found_v > config.voltage_max_v + _FLOAT_ROOM
    if abs(found_v - wanted_v) <= step_v + _FLOAT_ROOM and not above:
        return found_v
    message = f"{config.kind}: the output reads {found_v:.3f} V after {wanted_v:.3f} V was set"
    if not above:
        raise MeterError(f"{message}; the output may be on at {found_v:.3f} V", hint=_look_hint())
    message += f", above voltage_max_v {config.voltage_max_v:g}"
    try:
        switch_off()
    except MeterError as error:
        raise UnsafeOutput(
            f"{message}, and switching it off failed ({error.message}):"
            f" the output may be on at {found_v:.3f} V",
            hint="disconnect the device now",
        ) from error
    raise UnsafeOutput(
        f"{message}; it was switched off", hint="if that is its rounding, ask for a voltage a step lower"
    )


def _look_hint(also: str = "") -> str:
    ask = "`joulefleet meter info` shows its settings, `joulefleet meter output --off --yes` switches it off"
    return f"{ask}; {also}" if also else ask


def note_settings(
    log: FindingLog,
    config: MeterConfig,
    set_v: float,
    limit_a: float,
    *,
    tolerance_v: float,
) -> None:
    """Say where an output is not set as the configuration expects; change nothing.

    Args:
        log: Where it is said.
        config: What is expected.
        set_v: The voltage that the output is set to.
        limit_a: The current at which the instrument cuts it.
        tolerance_v: Settings agree within this.
    """
    if abs(set_v - config.voltage_v) > tolerance_v:
        log.add(
            "voltage_setting",
            Severity.WARNING,
            f"the output is set to {set_v:.2f} V, the configuration expects {config.voltage_v:g} V",
        )
    if limit_a > config.current_limit_a:
        log.add(
            "current_limit_setting",
            Severity.INFO,
            f"the instrument cuts the output at {limit_a:.2f} A, not at the"
            f" {config.current_limit_a:g} A that the configuration allows",
        )


def unsafe_output(config: MeterConfig, set_v: float, *, room_v: float) -> tuple[MeterError, ...]:
    """Why no meter may work with an output that is on above what the device stands; empty if it is not.

    Args:
        config: The limits.
        set_v: The voltage that the output is on at.
        room_v: How far above ``voltage_max_v`` is rounding.
    """
    if set_v <= config.voltage_max_v + room_v:
        return ()
    return (
        UnsafeOutput(
            f"{config.kind}: the output is on at {set_v:.2f} V, above voltage_max_v {config.voltage_max_v:g}",
            hint="disconnect the device, then `joulefleet meter output --set VOLTS` or `--off`;"
            " nothing was recorded",
        ),
    )


def passthrough_on(config: MeterConfig, mode: int) -> tuple[MeterError, ...]:
    """A device that charges through the instrument's USB port draws less from the output that is measured."""
    if mode in (UsbPassthrough.OFF, UsbPassthrough.AUTO):
        return ()
    return (
        MeterError(
            f"{config.kind}: USB passthrough is not off (mode {mode}), so charging would falsify the reading",
            hint="switch it off, or set the meter's option usb_passthrough_off = true",
        ),
    )


def require_safe_voltage(config: MeterConfig, voltage_v: float) -> None:
    """Refuse a voltage that the connected device does not stand.

    Raises:
        UnsafeOutput: It is above ``voltage_max_v``.
    """
    if not voltage_v <= config.voltage_max_v:  # also refuses NaN
        raise UnsafeOutput(
            f"{config.kind}: {voltage_v:g} V is above voltage_max_v {config.voltage_max_v:g}",
            hint="check what the device stands before you raise voltage_max_v",
        )


def require_safe_current_limit(config: MeterConfig, limit_a: float, range_a: tuple[float, float]) -> None:
    """Refuse to let more current through than the connected device may draw, and what would become none.

    Args:
        config: The limits.
        limit_a: What is asked for.
        range_a: What the instrument can be set to, see `OutputControl.current_limit_range_a`.

    Raises:
        UnsafeOutput: It is above ``current_limit_a``, or outside what the instrument can do.
    """
    if not limit_a <= config.current_limit_a:
        raise UnsafeOutput(
            f"{config.kind}: {limit_a:g} A is above current_limit_a {config.current_limit_a:g}",
            hint="check what the device stands before you raise current_limit_a",
        )
    lowest_a, highest_a = range_a
    if not lowest_a <= limit_a <= highest_a:
        raise UnsafeOutput(
            f"{config.kind}: {limit_a:g} A is outside the current limits that this instrument can be set to,"
            f" {lowest_a:.3g} to {highest_a:g} A; the output was left as it was",
            hint="`joulefleet meter output --off` switches the output off",
        )
