"""The index of a recording: one row per stored batch, enough to integrate over it without its samples.

Sums are over ticks, not seconds, because the final mapping from ticks to time is known only at the end.
They are made of the values as stored (32-bit), so that the index and a full read agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from power.recording.channels import POWER, RangeChannels, fast_noise

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


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
