"""What a calibration does: to readings, and to what may still be wrong with them.

The errors that are left are constant, so they do not average out over samples or repetitions (Type B in the
words of the GUM, JCGM 100:2008, 4.3). Gain and offset of one fit depend on each other, ranges share a
reference, and a resistor turns an error of the voltmeter into one of the current: `CalibratedAccuracy` keeps
these correlations as columns of independent errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from joulefleet.interval import NORMAL_95
from power.calibration import LinearCorrection, MeterCalibration, require_fit
from power.model import Accuracy, InstrumentInfo, RangeAccuracy, SampleBlock

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OVERLAP = 2.5
"""A Monsoon reads in its fine range up to a count, not up to a current: between the range's reference current
(its ``up_to_a``) and about twice that, a reading may come from either range. Recordings do not tell which."""


@dataclass(frozen=True, slots=True)
class _Zone:
    """Currents that are corrected alike: those of one range, or of two where either may have read them."""

    up_to_a: float | None
    ranges: tuple[int, ...]


def _zones(accuracy: Accuracy, calibration: MeterCalibration) -> list[_Zone]:
    parts = accuracy.current
    zones = []
    for i, part in enumerate(parts):
        zones.append(_Zone(part.up_to_a, (i,)))
        if part.up_to_a is None or not {part.name, parts[i + 1].name} & calibration.current.keys():
            continue
        after_a = parts[i + 1].up_to_a
        ends_a = OVERLAP * part.up_to_a
        if after_a is not None:
            ends_a = min(ends_a, math.sqrt(part.up_to_a * after_a))
        zones.append(_Zone(ends_a, (i, i + 1)))
    return zones


def _line(correction: LinearCorrection | None) -> tuple[float, float]:
    """Gain and offset; those of a reading that stays as it is if there is no correction."""
    return (1.0, 0.0) if correction is None else (correction.gain, correction.offset or 0.0)


class Correction:
    """A calibration, ready to be applied to the readings of an instrument with these ranges."""

    def __init__(self, accuracy: Accuracy, calibration: MeterCalibration) -> None:
        import numpy as np

        zones = _zones(accuracy, calibration)
        lines = [_line(calibration.current.get(part.name)) for part in accuracy.current]
        self._bounds_a = np.array([zone.up_to_a for zone in zones[:-1]], np.float64)
        by_zone = [np.mean([lines[r] for r in zone.ranges], axis=0) for zone in zones]
        self._gain, self._offset_a = np.array(by_zone).T
        self._voltage_gain, self._voltage_offset_v = _line(calibration.voltage)

    def apply(
        self, current_a: NDArray[np.floating[Any]], voltage_v: NDArray[np.floating[Any]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Corrected currents and voltages. The range of a reading is that of its absolute value."""
        import numpy as np

        current, voltage = current_a.astype(np.float64), voltage_v.astype(np.float64)
        zone = np.searchsorted(self._bounds_a, np.abs(current))
        return (
            self._gain[zone] * current + self._offset_a[zone],
            self._voltage_gain * voltage + self._voltage_offset_v,
        )

    def block(self, block: SampleBlock) -> SampleBlock:
        """A block with its values corrected."""
        current_a, voltage_v = self.apply(block.current_a, block.voltage_v)
        return replace(block, current_a=current_a, voltage_v=voltage_v)


def live_correction(
    info: InstrumentInfo, calibration: MeterCalibration | None
) -> Callable[[SampleBlock], SampleBlock]:
    """What to do with the blocks that come from an open meter, to show them.

    Raises:
        ConfigError: The calibration belongs to another unit, scaling, channel or range.
    """
    if calibration is None:
        return lambda block: block
    require_fit(calibration, info)
    return Correction(info.accuracy, calibration).block


class CalibratedAccuracy(Accuracy):
    """What is left to be wrong after the correction.

    Attributes:
        columns: Independent errors, each as its 95 % effect on the parameters of `Accuracy.scale_factors`.
    """

    columns: tuple[tuple[float, ...], ...]

    def scale_factors(self) -> NDArray[np.float64]:
        """See `Accuracy.scale_factors`."""
        import numpy as np

        return np.array(self.columns).T


def calibrated_accuracy(accuracy: Accuracy, calibration: MeterCalibration) -> CalibratedAccuracy:
    """The limits of an instrument whose readings are corrected.

    An error of gain and offset moves a corrected current by dg x reading + do. In terms of the corrected
    current I = g x reading + o that is (dg / g) I + (do - (o / g) dg): a relative gain error and an offset
    error, as `power.energy.uncertainty` takes them.
    """
    import numpy as np

    parts = accuracy.current
    n = len(parts)
    calibrated = [part.name in calibration.current for part in parts]
    base: list[NDArray[np.float64]] = []  # columns over (gains, offsets, voltage gain, voltage offset)

    def add(entries: Sequence[tuple[int, float]]) -> None:
        column = np.zeros(2 * n + 2)
        for row, value in entries:
            column[row] += value
        base.append(column)

    for r, part in enumerate(parts):
        found = calibration.current.get(part.name)
        for gain_u, offset_u in _errors(calibration, found, part.gain_rel, part.offset_a):
            add([(r, gain_u), (n + r, offset_u)])
    in_current = [r for r in range(n) if calibrated[r]]
    if calibration.reference_gain_uncertainty is not None:
        shared = calibration.standard(calibration.reference_gain_uncertainty)
        add([(r, shared) for r in in_current])
    limits = (accuracy.voltage_gain_rel, accuracy.voltage_offset_v)
    for gain_u, offset_u in _errors(calibration, calibration.voltage, *limits):
        entries = [(2 * n, gain_u), (2 * n + 1, offset_u)]
        if calibration.own_voltage_v is not None:
            carried = gain_u + offset_u / calibration.own_voltage_v
            entries += [(r, carried) for r in in_current]
        add(entries)
    return _by_zone(accuracy, calibration, np.stack(base, axis=1))


def calibrated_info(info: InstrumentInfo, calibration: MeterCalibration | None) -> InstrumentInfo:
    """An instrument with the accuracy of its corrected readings.

    Raises:
        ConfigError: The calibration belongs to another unit, scaling, channel or range.
    """
    if calibration is None:
        return info
    require_fit(calibration, info)
    return info.model_copy(update={"accuracy": calibrated_accuracy(info.accuracy, calibration)})


def _errors(
    calibration: MeterCalibration,
    correction: LinearCorrection | None,
    gain_limit_rel: float,
    offset_limit: float,
) -> list[tuple[float, float]]:
    """Two independent errors as (relative gain, offset), standard uncertainties."""
    if correction is None:
        return [(gain_limit_rel / NORMAL_95, 0.0), (0.0, offset_limit / NORMAL_95)]
    gain, offset = _line(correction)
    gain_u = calibration.standard(correction.gain_uncertainty)
    if correction.offset_uncertainty is None:
        return [(gain_u / gain, 0.0), (0.0, offset_limit / NORMAL_95)]
    offset_u = calibration.standard(correction.offset_uncertainty)
    together = correction.gain_offset_correlation
    return [
        (gain_u / gain, together * offset_u - offset / gain * gain_u),
        (0.0, math.sqrt(1 - together**2) * offset_u),
    ]


def _by_zone(
    accuracy: Accuracy, calibration: MeterCalibration, base: NDArray[np.float64]
) -> CalibratedAccuracy:
    """From ranges to zones. Where either of two ranges may have read, half their distance is an error too."""
    import numpy as np

    parts, n = accuracy.current, len(accuracy.current)
    zones = _zones(accuracy, calibration)
    lines = np.array([_line(calibration.current.get(part.name)) for part in parts])
    gains = [base[list(zone.ranges)].mean(axis=0) for zone in zones]
    offsets = [base[[n + r for r in zone.ranges]].mean(axis=0) for zone in zones]
    factors = np.vstack([*gains, *offsets, base[2 * n :]])
    for z, zone in enumerate(zones):
        if len(zone.ranges) == 2:
            half_gain, half_offset = (lines[zone.ranges[0]] - lines[zone.ranges[1]]) / 2
            gain, offset = lines[list(zone.ranges)].mean(axis=0)
            column = np.zeros((len(factors), 1))
            column[z], column[len(zones) + z] = half_gain / gain, half_offset - offset / gain * half_gain
            factors = np.hstack([factors, column])
    factors *= NORMAL_95
    limits = np.linalg.norm(factors, axis=1)
    correction = Correction(accuracy, calibration)
    current = []
    for z, zone in enumerate(zones):
        # Bounds are those of corrected currents now: the lower range's reading at the bound, corrected.
        up_to_a = zone.up_to_a
        if up_to_a is not None:
            up_to_a = float(correction.apply(np.array([up_to_a]), np.zeros(1))[0][0])
        name = " or ".join(parts[r].name for r in zone.ranges)
        current.append(
            RangeAccuracy(
                name=name,
                up_to_a=up_to_a,
                gain_rel=limits[z],
                offset_a=limits[len(zones) + z],
                step_a=_coarsest([parts[r].step_a for r in zone.ranges]),
            )
        )
    return CalibratedAccuracy(
        current=tuple(current),
        voltage_gain_rel=limits[-2],
        voltage_offset_v=limits[-1],
        voltage_step_v=accuracy.voltage_step_v,
        source=_source(accuracy, calibration),
        columns=tuple(map(tuple, factors.T.tolist())),
    )


def _coarsest(steps: Sequence[float | None]) -> float | None:
    known = [step for step in steps if step is not None]
    return max(known) if len(known) == len(steps) else None


def _source(accuracy: Accuracy, calibration: MeterCalibration) -> str:
    open_ends = [f"range {part.name}" for part in accuracy.current if part.name not in calibration.current]
    open_ends += [
        f"offset of range {name}" for name, found in calibration.current.items() if found.offset_a is None
    ]
    if calibration.voltage is None:
        open_ends.append("voltage")
    elif calibration.voltage.offset_v is None:
        open_ends.append("offset of the voltage")
    rest = f"; not in it: {', '.join(open_ends)} ({accuracy.source})" if open_ends else ""
    return calibration.describe() + rest
