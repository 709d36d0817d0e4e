"""What samples contribute to an integral: power, current, and the share of each measuring range.

Errors of an instrument differ between its ranges (a Monsoon's fine and coarse shunt), so an uncertainty
needs to know how much of an energy was read in which. A sample belongs to the range that its current
falls into. Each channel is a value per sample; all of them are integrated in the same way.

The index of a recording (``blocks.parquet``) has one row per stored batch with the integral of each channel:
enough to integrate over the batch without its samples. Sums are over ticks, not seconds, because the final
mapping from ticks to time is known only at the end. They are made of the values as stored (32-bit), so that
the index and a full read agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from power.model import Accuracy

POWER, CURRENT, VOLTAGE = 0, 1, 2
_MAD_TO_SD = 0.6745  # the median of |x| of a standard normal distribution
_SECOND_DIFFERENCE_GAIN = 6.0  # the variance of x[i+1] - 2 x[i] + x[i-1] is 6 times that of white x


@dataclass(frozen=True, slots=True)
class RangeChannels:
    """The channels of an instrument.

    Attributes:
        bounds_a: Upper current of every range but the last, increasing.
    """

    bounds_a: tuple[float, ...]

    @classmethod
    def of(cls, accuracy: Accuracy) -> Self:
        """The channels for the ranges that an accuracy statement names."""
        bounds = tuple(part.up_to_a for part in accuracy.current[:-1])
        known = tuple(bound for bound in bounds if bound is not None)
        if len(known) != len(bounds) or list(known) != sorted(set(known)):
            raise ValueError(f"ranges of {accuracy.source}: up_to_a must increase, only the last may lack it")
        return cls(known)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each channel: the totals, then what was read above the upper bound of each range."""
        above = (f"{name}_above{r}" for r in range(len(self.bounds_a)) for name in ("power", "voltage"))
        return ("power", "charge", "voltage", *above)

    def values(
        self, current_a: NDArray[np.floating[Any]], voltage_v: NDArray[np.floating[Any]]
    ) -> NDArray[np.float64]:
        """One row per channel, one column per sample."""
        rows = np.empty((3 + 2 * len(self.bounds_a), len(current_a)))
        rows[CURRENT] = current_a
        rows[VOLTAGE] = voltage_v
        np.multiply(rows[CURRENT], rows[VOLTAGE], out=rows[POWER])
        for r, bound_a in enumerate(self.bounds_a):
            above = np.abs(rows[CURRENT]) > bound_a
            np.multiply(rows[POWER], above, out=rows[3 + 2 * r])
            np.multiply(rows[VOLTAGE], above, out=rows[4 + 2 * r])
        return rows

    def by_range(
        self, integrals: NDArray[np.float64]
    ) -> tuple[list[tuple[float, ...]], list[tuple[float, ...]]]:
        """Energy and volt-seconds of each range, per window, from the integrals of all channels."""
        found = []
        for total, first_above in ((POWER, 3), (VOLTAGE, 4)):
            above = np.vstack([integrals[total], integrals[first_above::2], np.zeros(integrals.shape[1])])
            # What was read above one bound and not above the next belongs to the range between them.
            found.append([tuple(row) for row in (above[:-1] - above[1:]).T.tolist()])
        return found[0], found[1]


def fast_noise(power_w: NDArray[np.float64]) -> tuple[float, float]:
    """Sum of squared steps from sample to sample, and the variance of white noise among them.

    The noise is estimated from the median second difference, which neither slow changes of a load nor
    its rare jumps move.
    """
    steps = np.diff(power_w)
    if len(steps) < 2:
        return float(steps @ steps), 0.0
    sd = float(np.median(np.abs(np.diff(steps)))) / _MAD_TO_SD
    return float(steps @ steps), sd * sd / _SECOND_DIFFERENCE_GAIN


def index_schema(channels: RangeChannels) -> pa.Schema:
    """The columns of ``blocks.parquet``."""
    import pyarrow as pa

    return pa.schema(
        [
            ("first_index", pa.int64()),
            ("first_tick", pa.int64()),
            ("last_tick", pa.int64()),
            ("rows", pa.int32()),
            ("dropped_before", pa.int64()),  # null: the instrument cannot tell
            ("first_ns", pa.int64()),  # provisional host time, replaced by the final timebase
            ("last_ns", pa.int64()),
            ("offset", pa.int64()),  # where the batch begins in samples.arrows, bytes
            ("first_current_a", pa.float32()),  # the outermost samples, which join neighbouring batches
            ("first_voltage_v", pa.float32()),
            ("last_current_a", pa.float32()),
            ("last_voltage_v", pa.float32()),
            ("step_w2", pa.float64()),  # sum of squared steps of power from sample to sample
            ("noise_w2", pa.float64()),  # variance of the white noise in the power
            # power_ticks (W x tick), charge_ticks (A x tick), voltage_ticks (V x tick), then by range:
            *((f"{name}_ticks", pa.float64()) for name in channels.names),
        ]
    )


def index_sums(
    channels: RangeChannels,
    ticks: NDArray[np.int64],
    current_a: NDArray[np.float32],
    voltage_v: NDArray[np.float32],
) -> dict[str, list[Any]]:
    """The part of an index row that is computed from the samples."""
    values = channels.values(current_a, voltage_v)
    step_w2, noise_w2 = fast_noise(values[POWER])
    integrals = np.asarray(np.trapezoid(values, ticks, axis=1))
    return {
        "first_current_a": [current_a[0]],
        "first_voltage_v": [voltage_v[0]],
        "last_current_a": [current_a[-1]],
        "last_voltage_v": [voltage_v[-1]],
        "step_w2": [step_w2],
        "noise_w2": [noise_w2],
        **{f"{name}_ticks": [float(x)] for name, x in zip(channels.names, integrals, strict=True)},
    }
