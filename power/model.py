"""What crosses the seam between an instrument and everything else."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from heapq import nlargest
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from joulefleet.config import ClosedModel
from joulefleet.provenance import Instrument

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


Span = tuple[int, int]
"""The first and the last sample of a stretch, by their index."""

MAX_SPANS = 64
"""Places that a finding keeps apart. Beyond them the nearest are joined, and an error then also spoils the
windows in between."""


class Finding(ClosedModel):
    """Something a reader of the data must know. Equal codes are merged, so the list stays short.

    Attributes:
        code: Stable name, e.g. ``gap``, ``clipping``, ``bad_checksum``.
        count: How often it was seen.
        first_index: Sample index near which it was first seen; None unless every place is known.
        last_index: The same for the last time.
        spans: Where it was seen from the first to the last, if not everywhere.
    """

    code: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    severity: Severity
    message: str
    count: int = Field(default=1, ge=1)
    first_index: int | None = None
    last_index: int | None = None
    spans: tuple[Span, ...] = ()

    @model_serializer(mode="wrap")
    def _dump(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = dump(self)
        if not self.spans:  # as in records from before there were any, so that their hash stays the same
            data.pop("spans", None)
        return data

    def touches(self, first: int, last: int) -> bool:
        """Whether it concerns samples from ``first`` to ``last``; one without a place concerns all."""
        if self.first_index is None:
            return True
        end = self.first_index if self.last_index is None else self.last_index
        return any(a <= last and b >= first for a, b in self.spans or [(self.first_index, end)])


@dataclass(slots=True)
class _Seen:
    """What a log knows about one code."""

    severity: Severity
    message: str
    count: int = 0
    spans: list[Span] = field(default_factory=list)
    all_placed: bool = True

    def finding(self, code: str) -> Finding:
        placed = self.spans if self.all_placed else []
        return Finding(
            code=code,
            severity=self.severity,
            message=self.message,
            count=self.count,
            first_index=placed[0][0] if placed else None,
            last_index=self.spans[-1][1] if self.spans else None,
            spans=tuple(placed) if len(placed) > 1 else (),
        )


class FindingLog:
    """Collects findings in bounded memory: one entry per code, however often it happens."""

    def __init__(self) -> None:
        self._by_code: dict[str, _Seen] = {}

    def add(
        self,
        code: str,
        severity: Severity,
        message: str,
        *,
        index: int | None = None,
        last_index: int | None = None,
        count: int = 1,
    ) -> None:
        """Note a finding, at one sample or from it to another; the first message of a code is kept."""
        seen = self._by_code.setdefault(code, _Seen(severity, message))
        seen.count += count
        if index is None:
            seen.all_placed = False
        else:
            seen.spans = join_spans([*seen.spans, (index, index if last_index is None else last_index)])

    def add_each(
        self,
        code: str,
        severity: Severity,
        message: str,
        first: NDArray[np.int64],
        last: NDArray[np.int64] | None = None,
        *,
        count: int | None = None,
    ) -> None:
        """Note a finding at each of these samples, or from each to its ``last``; in ascending order.

        It was seen ``count`` times; by default once at each.
        """
        import numpy as np

        if not len(first):
            return
        last = first if last is None else last
        begins = np.concatenate(([True], first[1:] > last[:-1] + 1))
        ends = np.append(begins[1:], True)
        seen = self._by_code.setdefault(code, _Seen(severity, message))
        seen.count += len(first) if count is None else count
        seen.spans = join_spans([*seen.spans, *zip(first[begins].tolist(), last[ends].tolist(), strict=True)])

    def as_tuple(self) -> tuple[Finding, ...]:
        """The findings so far."""
        return tuple(seen.finding(code) for code, seen in self._by_code.items())


def join_spans(spans: list[Span], limit: int = MAX_SPANS) -> list[Span]:
    """Spans in order, those that touch as one; where they are too many, the nearest are joined too."""
    spans = sorted(spans)
    ends = list(accumulate((end for _, end in spans), max))
    between = ((spans[i][0] - ends[i - 1], i) for i in range(1, len(spans)))
    cuts = sorted(i for gap, i in nlargest(limit - 1, between) if gap > 1)
    return [(spans[a][0], ends[b - 1]) for a, b in pairwise([0, *cuts, len(spans)])]


SILENT_PERIODS = 5
"""An instrument that misses so many readings in a row is silent, however slow it is."""


ONE_LOST_PERIODS = 2.5
"""A single lost sample leaves two periods between its neighbours, give or take jitter."""


AVERAGES_FACT = "rows_are_averages"
"""The fact by which a source states that each sample is the average from its time to the next."""


class SampleClock(StrEnum):
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
        step_a: Between neighbouring readings: of the converter, and of the text where it was printed; None
            where it is not known.
    """

    name: str
    up_to_a: float | None = Field(default=None, gt=0)
    gain_rel: float = Field(ge=0)
    offset_a: float = Field(ge=0)
    step_a: float | None = Field(default=None, ge=0)

    @property
    def floor_a(self) -> float:
        """No current reads no further from zero than this."""
        return self.offset_a + (self.step_a or 0.0) / 2

    @model_serializer(mode="wrap")
    def _dump(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_unknown(dump(self), "step_a")


class Accuracy(ClosedModel):
    """Limits of error of an instrument, the steps of its readings, and where they come from.

    Attributes:
        current: By range.
        voltage_gain_rel: Relative gain error of the voltage, 95 % limit.
        voltage_offset_v: Its offset error, 95 % limit.
        voltage_step_v: As ``step_a`` of a range; 0 for a voltage that was not measured.
        source: Where all this comes from.
    """

    current: tuple[RangeAccuracy, ...] = Field(min_length=1)
    voltage_gain_rel: float = Field(ge=0)
    voltage_offset_v: float = Field(ge=0)
    voltage_step_v: float | None = Field(default=None, ge=0)
    source: str

    def scale_factors(self) -> NDArray[np.float64]:
        """How independent errors move gains and offsets; 95 % limits.

        Rows: the relative gain of the current by range, its offset by range, the relative gain of the
        voltage, its offset. Columns: errors that are independent of each other.
        """
        import numpy as np

        gains = [part.gain_rel for part in self.current]
        offsets = [part.offset_a for part in self.current]
        return np.diag([*gains, *offsets, self.voltage_gain_rel, self.voltage_offset_v])

    @property
    def voltage_floor_v(self) -> float:
        """No voltage reads no further from zero than this."""
        return self.voltage_offset_v + (self.voltage_step_v or 0.0) / 2

    @property
    def steps_known(self) -> bool:
        """Whether every step is on record; those before there were any have none."""
        return None not in (self.voltage_step_v, *(part.step_a for part in self.current))

    @model_serializer(mode="wrap")
    def _dump(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_unknown(dump(self), "voltage_step_v")


def without_unknown(data: dict[str, Any], key: str) -> dict[str, Any]:
    """As in records from before there was such a key, so that their hash stays the same."""
    if data.get(key) is None:
        data.pop(key, None)
    return data


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
    timing: SampleClock = SampleClock.INSTRUMENT
    loss: Loss = Loss.COUNTED
    accuracy: Accuracy
    facts: dict[str, str | int | float | bool] = Field(default_factory=dict)

    @property
    def hold_ns(self) -> int:
        """How long a sample stands for if it is an average; 0 for an instant."""
        return round(1e9 / self.rate_hz) if self.facts.get(AVERAGES_FACT) is True else 0

    def timeout_s(self, at_least_s: float) -> float:
        """How long to wait for a reading: at least so long, and longer for an instrument that is slow."""
        return max(at_least_s, SILENT_PERIODS / self.rate_hz)

    def instrument(self) -> Instrument:
        """The part that provenance keeps."""
        return Instrument(kind=self.kind, serial=self.serial, firmware=self.firmware, emulated=self.emulated)
