"""Sample times: the instrument's ticks mapped to the host clock by a lower-envelope fit.

A read reaches us after its last sample was taken, never before, so every (tick, arrival) pair lies on or
above the true line. The best line under all of them is an edge of their lower convex hull, the one that
straddles the mean tick (it minimises the mean delay; Zhang, Liu and Xia, INFOCOM 2002). Long recordings
get one line per segment, joined at knots, which follows a drifting crystal.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from joulefleet.config import ClosedModel
from joulefleet.errors import DataQualityError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from power.model import InstrumentInfo

SEGMENT_S = 600.0
"""Length of one segment: crystals drift over minutes, and delays need minutes to reach their minimum."""

RATE_TOLERANCE_PPM = 10_000.0
"""How far a sample clock may be off, unless the instrument is known to do better: twice the 0.5 % of the
resonator on an Arduino Uno. A short recording cannot tell skew from delay; this bounds the guess."""

QUARTZ_TOLERANCE_PPM = 500.0
"""The same for a crystal."""

TOLERANCE_FACT = "clock_tolerance_ppm"
"""The fact by which an instrument states a tolerance of its own."""


RATE_UNSURE_FACT = "rate_unsure_ppm"
"""The fact by which an instrument states how well its nominal rate itself is known."""


def clock_tolerance_ppm(info: InstrumentInfo) -> float:
    """How far the sample clock of an instrument may be off its nominal rate."""
    return float(info.facts.get(TOLERANCE_FACT, RATE_TOLERANCE_PPM))


class Timebase(ClosedModel):
    """Piecewise linear map from instrument ticks to host-monotonic nanoseconds.

    Attributes:
        ticks: Knots on the instrument's clock, increasing.
        host_ns: The same knots on the host clock.
        residual_ns: Median delay of reads above the line: how noisy the link was.
        beyond_ns: How far, in the middle, the line stays under the fastest reads, because to follow them the
            clock would have to be further off than its tolerance allows.
    """

    ticks: tuple[int, ...] = Field(min_length=2)
    host_ns: tuple[int, ...] = Field(min_length=2)
    residual_ns: float = Field(default=0.0, ge=0)
    beyond_ns: float = Field(default=0.0, ge=0)

    @model_serializer(mode="wrap")
    def _dump(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = dump(self)
        if not self.beyond_ns:  # as in records from before there was any, so that their hash stays the same
            data.pop("beyond_ns", None)
        return data

    @model_validator(mode="after")
    def _knots_increase(self) -> Self:
        for name in ("ticks", "host_ns"):
            values = getattr(self, name)
            if any(b <= a for a, b in pairwise(values)):
                raise ValueError(f"{name}: knots must increase")
        if len(self.ticks) != len(self.host_ns):
            raise ValueError("ticks and host_ns: different number of knots")
        return self

    @property
    def tick_hz(self) -> float:
        """Mean tick rate against the host clock."""
        return (self.ticks[-1] - self.ticks[0]) * 1e9 / (self.host_ns[-1] - self.host_ns[0])

    @property
    def drift_ppm(self) -> float:
        """Change of the tick rate from the first segment to the last, parts per million."""
        if len(self.ticks) < 3:
            return 0.0
        first = (self.ticks[1] - self.ticks[0]) / (self.host_ns[1] - self.host_ns[0])
        last = (self.ticks[-1] - self.ticks[-2]) / (self.host_ns[-1] - self.host_ns[-2])
        return (last / first - 1.0) * 1e6

    def to_host_ns(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Host time of each tick; the first and last lines extend beyond the knots."""
        import numpy as np

        return _piecewise(ticks, np.asarray(self.ticks), np.asarray(self.host_ns))

    def to_ticks(self, host_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """The inverse of `to_host_ns`, rounded to whole ticks."""
        import numpy as np

        return _piecewise(host_ns, np.asarray(self.host_ns), np.asarray(self.ticks))


def _piecewise(x: NDArray[np.int64], xs: NDArray[np.int64], ys: NDArray[np.int64]) -> NDArray[np.int64]:
    import numpy as np

    x = np.asarray(x, np.int64)
    i = np.clip(np.searchsorted(xs, x) - 1, 0, len(xs) - 2)
    slope = (ys[1:] - ys[:-1]) / (xs[1:] - xs[:-1])
    # Offsets from the knot stay small enough for float64 to be exact to the nanosecond for weeks.
    offset: NDArray[np.int64] = np.rint((x - xs[i]) * slope[i]).astype(np.int64)
    return ys[i] + offset


class _Line(NamedTuple):
    """A line under the reads of a segment: a point, the slope in ns per tick, and `Timebase.beyond_ns`."""

    tick: int
    host_ns: int
    slope: float
    beyond_ns: float

    def at(self, tick: float) -> float:
        return self.host_ns + self.slope * (tick - self.tick)


@dataclass(slots=True)
class _Segment:
    """Lower convex hull of the reads of one segment, built as they come."""

    hull: list[tuple[int, int]] = field(default_factory=list)
    n: int = 0
    tick_sum: int = 0

    def add(self, tick: int, arrival_ns: int) -> None:
        self.n += 1
        self.tick_sum += tick
        hull = self.hull
        while len(hull) >= 2:
            (x1, y1), (x2, y2) = hull[-2], hull[-1]
            if (x2 - x1) * (arrival_ns - y1) > (y2 - y1) * (tick - x1):
                break
            hull.pop()
        hull.append((tick, arrival_ns))

    def line(self, nominal_ns: float, tolerance_ppm: float) -> _Line:
        mean = self.tick_sum / self.n
        # The edge of the hull over the mean tick is the line with the smallest mean delay.
        (x1, y1), seen = self.hull[0], nominal_ns
        for a, b in pairwise(self.hull):
            if a[0] <= mean <= b[0]:
                (x1, y1), seen = a, (b[1] - a[1]) / (b[0] - a[0])
                break
        # A slope that no clock has comes from the link: the line keeps a possible one, below all reads.
        tolerance = nominal_ns * tolerance_ppm * 1e-6
        slope = min(max(seen, nominal_ns - tolerance), nominal_ns + tolerance)
        x0, y0 = min(self.hull, key=lambda point: point[1] - slope * (point[0] - x1))
        beyond_ns = y1 - y0 + seen * (mean - x1) - slope * (mean - x0) if slope != seen else 0.0
        return _Line(x0, y0, slope, max(0.0, beyond_ns))


class TimebaseFitter:
    """Fits a `Timebase` to a stream of reads in bounded memory.

    Args:
        tick_hz: Nominal tick rate.
        tolerance_ppm: How far it may be off; see `clock_tolerance_ppm`.
        segment_s: Length of one linear segment.
    """

    def __init__(
        self, tick_hz: float, *, tolerance_ppm: float = RATE_TOLERANCE_PPM, segment_s: float = SEGMENT_S
    ) -> None:
        self._nominal_ns = 1e9 / tick_hz
        self._tolerance_ppm = tolerance_ppm
        self._segment_ticks = round(segment_s * tick_hz)
        self._finished: list[_Line] = []  # of every segment but the last, so that a fit costs no more later
        self._segment: _Segment | None = None
        self._bounds: list[int] = []
        self._last_tick: int | None = None
        self._delays_ns: deque[float] = deque(maxlen=1024)

    def add(self, tick: int, arrival_ns: int) -> None:
        """Note that the sample taken at ``tick`` had arrived by ``arrival_ns``; ticks must increase."""
        if self._last_tick is not None and tick <= self._last_tick:
            return
        segment = self._segment
        if segment is None or tick >= self._bounds[-1] + self._segment_ticks:
            if segment is not None:
                self._finished.append(segment.line(self._nominal_ns, self._tolerance_ppm))
            segment = self._segment = _Segment()
            self._bounds.append(tick)
        segment.add(tick, arrival_ns)
        self._last_tick = tick
        # Each read of a short recording counts; of a long one, the last minutes are plenty.
        if segment.n <= 100 or segment.n % 8 == 0:
            line = segment.line(self._nominal_ns, self._tolerance_ppm)
            self._delays_ns.append(max(0.0, arrival_ns - line.at(tick)))

    def fit(self) -> Timebase:
        """The timebase of everything added so far.

        Raises:
            ValueError: Nothing was added yet.
            DataQualityError: The reads fit no clock that goes on.
        """
        import numpy as np

        if self._segment is None or self._last_tick is None:
            raise ValueError("no reads to fit a timebase to")
        # A last segment too short to know its own rate would bend the end of the line.
        if self._finished and self._last_tick - self._bounds[-1] < self._segment_ticks // 2:
            lines, bounds = self._finished, self._bounds[:-1]
        else:
            last = self._segment.line(self._nominal_ns, self._tolerance_ppm)
            lines, bounds = [*self._finished, last], self._bounds
        end = max(self._last_tick, bounds[0] + 1)
        ticks = [bounds[0], *bounds[1:], end]
        host = [lines[0].at(ticks[0])]
        host += [(a.at(t) + b.at(t)) / 2 for a, b, t in zip(lines, lines[1:], bounds[1:], strict=False)]
        host.append(lines[-1].at(end))
        host_ns = tuple(max(0, round(t)) for t in host)
        if any(b <= a for a, b in pairwise(host_ns)):
            raise DataQualityError(
                "the clocks of the instrument and of this machine cannot be brought together: one has leapt",
                hint="keep the machine from sleeping, and record again",
            )
        return Timebase(
            ticks=tuple(ticks),
            host_ns=host_ns,
            residual_ns=float(np.median(self._delays_ns)),
            beyond_ns=max(line.beyond_ns for line in lines),
        )
