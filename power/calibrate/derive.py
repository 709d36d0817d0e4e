"""Deriving a meter's calibration: its readings against known resistors or against a reference meter.

Gain and offset are those of a straight line, ``reference = gain x reading + offset``, by generalised least
squares: each point has errors of its own (Type A of its readings, a step of the converter), and errors that
it shares with others (the same resistor, the same reference meter), which no number of points averages out.

A resistor gives a current only together with a voltage. It is the meter's own, corrected where reference
volts are given, so an error of the voltage is in the current too; the calibration says so
(``own_voltage_v``).

With a single current nothing tells gain from offset. Then the offset is taken as zero within the limits that
the driver assumes, and its error is carried against that of the gain: at the current of the point they
cancel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from joulefleet.config import sentence
from joulefleet.errors import DataQualityError
from joulefleet.interval import NORMAL_95
from power.calibrate.line import FittedLine, digits, fit_line
from power.calibrate.points import K, MeasuredPoint
from power.calibration import MeterCalibration
from power.correction import OVERLAP
from power.model import Accuracy, InstrumentInfo, RangeAccuracy

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLOOR_SHARE = 0.1
"""What a mean reading may be off although it scatters less, as a share of the offset limit that the driver
assumes: warming up, contacts, and steps of a converter that are not known."""


@dataclass(frozen=True, slots=True)
class DerivedCalibration:
    """A calibration, and what a person should know about it.

    Attributes:
        residuals: By range (and ``voltage``): reference minus corrected reading at each point.
        notes: What the points could not tell.
    """

    calibration: MeterCalibration
    residuals: dict[str, tuple[float, ...]]
    notes: tuple[str, ...] = ()


def derive_calibration(
    points: Sequence[MeasuredPoint], info: InstrumentInfo, **about: Any
) -> DerivedCalibration:
    """Gain and offset of each range that has points, and of the voltage where reference volts are given.

    Args:
        points: Measured with one instrument.
        info: The instrument.
        about: Further fields of `MeterCalibration`: ``by``, ``certificate``, ``temperature_c`` and so on.

    Raises:
        DataQualityError: The points contradict themselves or are too close; the result is impossible.
    """
    accuracy = info.accuracy
    voltage = _voltage_line(points, accuracy)
    current = [point for point in points if point.reference.volts is None or _has_current(point)]
    by_range: dict[str, list[MeasuredPoint]] = {}
    for point in filter(_has_current, current):
        by_range.setdefault(_range_of(point, accuracy).name, []).append(point)
    volts = _Volts(voltage, accuracy, [p for found in by_range.values() for p in found])
    lines: dict[str, FittedLine] = {}
    for part in accuracy.current:
        if part.name in by_range:
            lines[part.name] = _current_line(part, by_range[part.name], volts)
    stated: dict[str, Any] = {
        "current": {name: line.stated("a") for name, line in lines.items()},
        "voltage": None if voltage is None else voltage.stated("v"),
        "k": K,
        "reference_gain_uncertainty": digits(K * volts.shared_rel, 3) if volts.shared_rel else None,
        "own_voltage_v": None if volts.at_v is None else digits(volts.at_v, 4),
        "date": datetime.now(UTC).date(),
        "serial": info.serial,
        "scale": str(info.facts.get("scale", "")),
        "channel": str(info.facts.get("channel", "main")),
        "method": _method(points, info),
        "readings": len(points),
        **about,
    }
    try:
        calibration = MeterCalibration.model_validate(stated)
    except ValidationError as error:
        detail = error.errors()[0]
        where = ".".join(map(str, detail["loc"]))
        raise DataQualityError(
            f"no such calibration can be: {where}: {sentence(detail)}, got {detail['input']!r:.60}",
            hint="check the values of the references, and that each load was the one connected",
        ) from None
    known = lines | ({} if voltage is None else {"voltage": voltage})
    residuals = {name: line.residuals for name, line in known.items()}
    return DerivedCalibration(calibration, residuals, tuple(_notes(known, accuracy)))


def _has_current(point: MeasuredPoint) -> bool:
    return point.reference.ohms is not None or point.reference.amperes is not None


def _range_of(point: MeasuredPoint, accuracy: Accuracy) -> RangeAccuracy:
    """The range that read a point.

    Raises:
        DataQualityError: Either of two may have.
    """
    for part in accuracy.current:
        if part.up_to_a is None or point.current_a <= part.up_to_a:
            return part
        if point.current_a <= OVERLAP * part.up_to_a:
            raise DataQualityError(
                f"{point.current_a:.4g} A may have been read in range {part.name} or in the next",
                hint=f"take a load below {part.up_to_a:.3g} A or above {OVERLAP * part.up_to_a:.3g} A",
            )
    return accuracy.current[-1]


def _floor(offset_limit: float, step: float | None) -> float:
    return math.hypot(FLOOR_SHARE * offset_limit / NORMAL_95, (step or 0.0) / math.sqrt(12))


def _voltage_line(points: Sequence[MeasuredPoint], accuracy: Accuracy) -> FittedLine | None:
    known = [p for p in points if p.reference.volts is not None]
    if not known:
        return None
    floor_v = _floor(accuracy.voltage_offset_v, accuracy.voltage_step_v)
    return fit_line(
        "voltage",
        np.array([p.voltage_v for p in known]),
        np.array([p.reference.volts for p in known]),
        np.array([math.hypot(p.voltage_u_v, floor_v) for p in known]),
        [np.array([(p.reference.volts_uncertainty or 0.0) / K for p in known])],
        accuracy.voltage_offset_v / NORMAL_95,
        refuse_close=False,  # loads are usually taken at one voltage
    )


class _Volts:
    """The voltage behind the current of a resistor, and the errors that all currents share.

    Attributes:
        at_v: Mean voltage of the resistors; None if there are none.
        shared_rel: Relative standard uncertainty of what all points were compared with, if it was one thing.
    """

    def __init__(self, line: FittedLine | None, accuracy: Accuracy, points: Sequence[MeasuredPoint]) -> None:
        self._gain, self._offset_v = (1.0, 0.0) if line is None else (line.gain, line.offset)
        self._offset_u_v = (
            accuracy.voltage_offset_v / NORMAL_95 if line is None else math.sqrt(line.covariance[1, 1])
        )
        resistors = [p for p in points if p.reference.ohms is not None]
        self.at_v = float(np.mean([self.of(p) for p in resistors])) if resistors else None
        one = len({self.source(p) for p in points}) == 1
        self.shared_rel = min((self.relative_u(p) for p in points), default=0.0) if one else 0.0

    def of(self, point: MeasuredPoint) -> float:
        """The corrected voltage of a point."""
        return self._gain * point.voltage_v + self._offset_v

    def current(self, point: MeasuredPoint) -> float:
        """What should flow, amperes."""
        reference = point.reference
        return self.of(point) / reference.ohms if reference.ohms else reference.amperes or 0.0

    def source(self, point: MeasuredPoint) -> float | None:
        """What a point was compared with: a resistor by its value, or the reference meter (None)."""
        return point.reference.ohms

    def relative_u(self, point: MeasuredPoint) -> float:
        """Relative standard uncertainty of that; tolerances are limits, rectangular."""
        reference = point.reference
        if reference.ohms is not None:
            return (reference.tolerance or 0.0) / math.sqrt(3)
        return (reference.amperes_uncertainty or 0.0) / K / (reference.amperes or 1.0)

    def shared_errors(self, points: Sequence[MeasuredPoint]) -> list[NDArray[np.float64]]:
        """One for each thing that points of a range were compared with, and one for the voltage's offset."""
        current_a = np.array([self.current(p) for p in points])
        # What all points share in proportion stands apart in the calibration: it is the same in other ranges.
        rest = np.array([math.sqrt(max(0.0, self.relative_u(p) ** 2 - self.shared_rel**2)) for p in points])
        sources = {self.source(p): None for p in points}
        found = [rest * current_a * [self.source(p) == source for p in points] for source in sources]
        if self.at_v is not None:
            tilt = [0.0 if p.reference.ohms is None else 1 / self.of(p) - 1 / self.at_v for p in points]
            found.append(self._offset_u_v * current_a * np.array(tilt))
        return found


def _current_line(part: RangeAccuracy, points: Sequence[MeasuredPoint], volts: _Volts) -> FittedLine:
    floor_a = _floor(part.offset_a, part.step_a)
    return fit_line(
        f"range {part.name}",
        np.array([p.current_a for p in points]),
        np.array([volts.current(p) for p in points]),
        np.array([math.hypot(p.current_u_a, floor_a, _from_volts(p)) for p in points]),
        volts.shared_errors(points),
        part.offset_a / NORMAL_95,
        refuse_close=True,
    )


def _from_volts(point: MeasuredPoint) -> float:
    """What the scatter of the voltage does to the current that a resistor stands for."""
    return 0.0 if point.reference.ohms is None else point.voltage_u_v / point.reference.ohms


def _method(points: Sequence[MeasuredPoint], info: InstrumentInfo) -> str:
    def loads(name: str) -> list[str]:
        return [f"{value:g}" for p in points if (value := getattr(p.reference, name)) is not None]

    parts = [f"resistors of {', '.join(dict.fromkeys(loads('ohms')))} ohms"] if loads("ohms") else []
    parts += [f"reference meter at {', '.join(loads('amperes'))} A"] if loads("amperes") else []
    parts += [f"reference meter at {', '.join(loads('volts'))} V"] if loads("volts") else []
    samples = sum(p.n_samples for p in points)
    emulated = "EMULATED instrument, " if info.emulated else ""
    return f"joulefleet meter calibrate: {emulated}{'; '.join(parts)}; {samples} samples"[:500]


def _notes(lines: dict[str, FittedLine], accuracy: Accuracy) -> list[str]:
    found = [
        f"{name}: one value only, so its offset was not derived: it is zero within what the driver assumes"
        for name, line in lines.items()
        if not line.offset_derived
    ]
    found += [
        f"range {part.name}: no point, so it stays as the driver assumes"
        for part in accuracy.current
        if part.name not in lines
    ]
    if "voltage" not in lines:
        found.append("voltage: no reference volts, so it stays as the driver assumes")
    return found
