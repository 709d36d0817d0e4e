"""Safety of real hardware: an output changes only when it is asked for by name, and within the limits."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from fedjoule.errors import UnsafeOutput
from power.meter import MeterConfig


@runtime_checkable
class OutputControl(Protocol):
    """A meter that also supplies the device. Nothing but an explicit request calls these."""

    def set_voltage(self, voltage_v: float) -> float:
        """Switch the output on at a voltage, at most ``voltage_max_v``; returns what was set."""

    def switch_output_off(self) -> None:
        """Cut the device's supply."""


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


def require_safe_current_limit(config: MeterConfig, limit_a: float) -> None:
    """Refuse to let more current through than the connected device may draw.

    Raises:
        UnsafeOutput: It is above ``current_limit_a``.
    """
    if not limit_a <= config.current_limit_a:
        raise UnsafeOutput(
            f"{config.kind}: {limit_a:g} A is above current_limit_a {config.current_limit_a:g}",
            hint="check what the device stands before you raise current_limit_a",
        )
