"""What crosses the seam between an instrument and everything else."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pydantic import Field

from fedjoule.config import ClosedModel
from fedjoule.provenance import Instrument

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SampleBlock:
    """A run of samples with no gap inside; a gap is what lies between two blocks.

    Attributes:
        t_ns: Host-monotonic time of each sample, int64. From the fitted timebase, never from arrival.
        ticks: The instrument's own clock, int64: sample number (Monsoon) or microseconds (INA219).
        current_a: Current, float.
        voltage_v: Voltage at the output (or bus), float.
        first_index: Number of the first sample in the instrument's own count, lost ones included.
        dropped_before: Samples lost right before this block; None where the instrument cannot tell.
    """

    t_ns: NDArray[np.int64]
    ticks: NDArray[np.int64]
    current_a: NDArray[np.floating[Any]]
    voltage_v: NDArray[np.floating[Any]]
    first_index: int
    dropped_before: int | None

    def __post_init__(self) -> None:
        lengths = {len(self.t_ns), len(self.ticks), len(self.current_a), len(self.voltage_v)}
        if len(lengths) != 1:
            raise ValueError(f"SampleBlock: arrays of different length {sorted(lengths)}")

    def __len__(self) -> int:
        return len(self.t_ns)

    @property
    def power_w(self) -> NDArray[np.floating[Any]]:
        """Power of each sample: its own volts times its own amperes."""
        return self.current_a * self.voltage_v


class Severity(StrEnum):
    """How much a finding matters: ``error`` makes the windows it touches invalid."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Finding(ClosedModel):
    """Something a reader of the data must know. Equal codes are merged, so the list stays short.

    Attributes:
        code: Stable name, e.g. ``gap``, ``clipping``, ``bad_checksum``.
        count: How often it was seen.
        first_index: Sample index near which it was first seen, if that is known.
        last_index: The same for the last time.
    """

    code: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    severity: Severity
    message: str
    count: int = Field(default=1, ge=1)
    first_index: int | None = None
    last_index: int | None = None


class FindingLog:
    """Collects findings in bounded memory: one entry per code, however often it happens."""

    def __init__(self) -> None:
        self._by_code: dict[str, Finding] = {}

    def add(
        self, code: str, severity: Severity, message: str, *, index: int | None = None, count: int = 1
    ) -> None:
        """Note a finding; the first message of a code is kept."""
        old = self._by_code.get(code)
        if old is None:
            new = Finding(
                code=code,
                severity=severity,
                message=message,
                count=count,
                first_index=index,
                last_index=index,
            )
        else:
            new = old.model_copy(
                update={
                    "count": old.count + count,
                    "last_index": index if index is not None else old.last_index,
                }
            )
        self._by_code[code] = new

    def merge(self, findings: tuple[Finding, ...]) -> None:
        """Take over findings made elsewhere."""
        for finding in findings:
            self.add(
                finding.code,
                finding.severity,
                finding.message,
                index=finding.first_index,
                count=finding.count,
            )

    def as_tuple(self) -> tuple[Finding, ...]:
        """The findings so far."""
        return tuple(self._by_code.values())


SILENT_PERIODS = 5
"""An instrument that misses so many readings in a row is silent, however slow it is."""


class Timing(StrEnum):
    """Whose clock the sample times come from."""

    INSTRUMENT = "instrument"
    HOST = "host"


class Loss(StrEnum):
    """Whether lost samples are counted by the instrument."""

    COUNTED = "counted"
    UNKNOWN = "unknown"


class RangeAccuracy(ClosedModel):
    """Limits of error of one measuring range, as a data sheet or a calibration states them.

    Attributes:
        name: e.g. ``fine``, ``coarse``; ``all`` when there is only one.
        up_to_a: Largest current (absolute) read in this range; None for the last range.
        gain_rel: Relative gain error, 95 % limit.
        offset_a: Offset error in amperes, 95 % limit.
    """

    name: str
    up_to_a: float | None = Field(default=None, gt=0)
    gain_rel: float = Field(ge=0)
    offset_a: float = Field(ge=0)


class Accuracy(ClosedModel):
    """Limits of error of an instrument, and where they come from."""

    current: tuple[RangeAccuracy, ...] = Field(min_length=1)
    voltage_gain_rel: float = Field(ge=0)
    voltage_offset_v: float = Field(ge=0)
    source: str


class InstrumentInfo(ClosedModel):
    """Facts about an open instrument.

    Attributes:
        emulated: True unless the transport proves real hardware; it is never a user's choice.
        rate_hz: Nominal samples per second.
        tick_hz: Nominal ticks of the instrument's own clock per second.
        uniform_ticks: Every sample advances the clock by the same number of ticks (``tick_hz / rate_hz``).
        facts: Further facts as the instrument reports them (settings, resistors, calibration words).
    """

    kind: str
    serial: str = ""
    firmware: str = ""
    hardware: str = ""
    port: str = ""
    emulated: bool
    rate_hz: float = Field(gt=0)
    tick_hz: float = Field(gt=0)
    uniform_ticks: bool
    timing: Timing = Timing.INSTRUMENT
    loss: Loss = Loss.COUNTED
    accuracy: Accuracy
    facts: dict[str, str | int | float | bool] = Field(default_factory=dict)

    def patience_s(self, at_least_s: float) -> float:
        """How long to wait for a reading: at least so long, and longer for an instrument that is slow."""
        return max(at_least_s, SILENT_PERIODS / self.rate_hz)

    def instrument(self) -> Instrument:
        """The part that provenance keeps."""
        return Instrument(kind=self.kind, serial=self.serial, firmware=self.firmware, emulated=self.emulated)
