"""The seam to instruments: `PowerMeter`, its configuration with mandatory safety limits, the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol, Self, runtime_checkable

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from joulefleet.config import ClosedModel
from joulefleet.errors import MeterError
from joulefleet.registry import Registry
from power.calibration import MeterCalibration, require_not_in_future
from power.model import Finding, InstrumentInfo, SampleBlock, without_unknown
from power.timebase import Timebase


class MeterConfig(ClosedModel):
    """One instrument and what the device connected to it can stand.

    The three limits are mandatory, because a wrong default could destroy the device. No driver
    changes the output because of them; they are what an explicit request is checked against, and what
    the instrument's own setting is compared with. Switching the output on gives the instrument the current
    limit first (`power.meters.safety.switch_output_on`).

    Examples:
        >>> MeterConfig(kind="ina219", port="/dev/ttyUSB0", voltage_v=5, voltage_max_v=5.5, current_limit_a=3)

    Attributes:
        kind: Registered name, see ``joulefleet meter list``.
        port: Serial port, or empty to find the instrument by kind and serial number.
        serial: Serial number; refuses an instrument with another one.
        voltage_v: Supply voltage that the device expects.
        voltage_max_v: Highest voltage that may ever be set.
        current_limit_a: Highest current the device may draw.
        channel: Which channel is read.
        options: Further options of the driver.
        calibration: How its readings are corrected; without one they count as they are, within wide limits.
    """

    kind: str
    port: str = ""
    serial: str = ""
    voltage_v: float = Field(gt=0, le=60)
    voltage_max_v: float = Field(gt=0, le=60)
    current_limit_a: float = Field(gt=0, le=100)
    channel: Literal["main", "usb", "aux"] = "main"
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    calibration: MeterCalibration | None = None

    @field_validator("calibration")
    @classmethod
    def _made_already(cls, calibration: MeterCalibration | None) -> MeterCalibration | None:
        return require_not_in_future(calibration)

    @model_validator(mode="after")
    def _voltage_fits(self) -> Self:
        if self.voltage_v > self.voltage_max_v:
            raise ValueError(f"voltage_v {self.voltage_v} is above voltage_max_v {self.voltage_max_v}")
        return self

    @model_validator(mode="after")
    def _calibration_is_of_this_unit(self) -> Self:
        stated = "" if self.calibration is None else self.calibration.serial
        if stated and self.serial and stated.lstrip("0") != self.serial.strip().lstrip("0"):
            raise ValueError(f"calibration.serial {stated!r} is another unit than serial {self.serial!r}")
        return self

    @model_serializer(mode="wrap")
    def _dump(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_unknown(dump(self), "calibration")


class RawSink(Protocol):
    """Where a stream leaves the instrument's bytes, exactly as they came and before they are decoded."""

    def write(self, data: bytes, arrival_ns: int) -> None:
        """Keep ``data``, the last byte of which had arrived at host-monotonic time ``arrival_ns``."""


@runtime_checkable
class PowerMeter(Protocol):
    """An instrument that is open. It reads; it never integrates and never touches its output unasked.

    Use as a context manager. ``stream`` may be called once; it ends after ``stop``, which any thread
    may call. `MeterDisconnected` ends a stream early, after every sample that had arrived was yielded.
    """

    @property
    def info(self) -> InstrumentInfo:
        """Facts about the instrument."""

    @property
    def timebase(self) -> Timebase:
        """The best mapping from ticks to host time known so far; final after the stream has ended."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the driver noticed so far."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...

    def stream(self, raw: RawSink | None = None) -> Iterator[SampleBlock]:
        """Start sampling and yield blocks until stopped; ``raw`` receives the undecoded bytes."""

    def stop(self) -> None:
        """Ask the stream to end; returns at once."""


@runtime_checkable
class RefusesSettings(Protocol):
    """A meter that does not record while its instrument is set in some ways, such as to an unsafe voltage."""

    def obstacles(self) -> tuple[MeterError, ...]:
        """Why a recording would be refused as the instrument is set now; empty if it would not be."""


MeterFactory = Callable[[MeterConfig], PowerMeter]

METERS: Registry[MeterFactory] = Registry(
    what="power meter",
    group="joulefleet.power_meters",
    builtin={
        "monsoon-lvpm": (
            "power.meters.monsoon_lvpm:open_meter",
            "Monsoon LVPM (white), stock firmware, serial",
        ),
        "monsoon-hvpm": (
            "power.meters.monsoon_hvpm:open_meter",
            "Monsoon HVPM, or a reflashed LVPM, over USB",
        ),
        "ina219": ("power.meters.ina219:open_meter", "INA219 on a microcontroller, framed serial protocol"),
        "ina219-csv": ("power.meters.ina219_csv:open_meter", "INA219 sketches that print CSV (host timing)"),
        "replay": (
            "power.meters.replay:open_meter",
            "A stored recording, in real time or as fast as possible",
        ),
    },
)


def open_meter(config: MeterConfig, *, any_settings: bool = False) -> PowerMeter:
    """Open the instrument that a configuration describes; use it as a context manager.

    Args:
        config: Which instrument, and what the connected device stands.
        any_settings: Also open one whose settings forbid a recording, to show or mend them.

    Raises:
        UnsafeOutput: Its output is on above ``voltage_max_v``.
        MeterError: It cannot be opened, or another of its settings forbids a recording.

    Examples:
        >>> config = MeterConfig(kind="monsoon-lvpm", voltage_v=4.0, voltage_max_v=4.2, current_limit_a=3.0)
        >>> with open_meter(config) as meter:
        ...     print(meter.info.kind, meter.info.rate_hz)
    """
    meter = METERS.load(config.kind)(config)
    try:
        if not any_settings and isinstance(meter, RefusesSettings):
            require_no_obstacle(meter.obstacles())
    except BaseException:
        meter.__exit__(None, None, None)
        raise
    return meter


def require_no_obstacle(found: tuple[MeterError, ...]) -> None:
    """Raise the first of a meter's obstacles, which also names the others."""
    if found:
        raise type(found[0])("; ".join(error.message for error in found), hint=found[0].hint)
