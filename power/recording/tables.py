"""The tables of a recording, and what its readers rely on in them.

``samples`` has a row per sample, ``blocks`` one per stored batch (`power.recording.channels`), ``arrivals``
one per portion of the instrument's bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from joulefleet.runstore.columns import Columns
from power.recording.channels import RangeChannels, index_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from power.model import InstrumentInfo


def samples_schema(uniform: bool) -> pa.Schema:
    """What was read. Where ticks are uniform they follow from the batch's first."""
    import pyarrow as pa

    fields = [pa.field("current_a", pa.float32()), pa.field("voltage_v", pa.float32())]
    if not uniform:
        fields.insert(0, pa.field("tick", pa.int64()))
    return pa.schema(fields)


def arrivals_schema() -> pa.Schema:
    """Where a portion of ``raw.bin`` ends, and when it arrived."""
    import pyarrow as pa

    return pa.schema([("end_offset", pa.int64()), ("arrival_ns", pa.int64())])


def samples_columns(info: InstrumentInfo) -> Columns:
    """Of ``samples``."""
    return Columns(samples_schema(info.uniform_ticks), finite=True)


def index_columns(info: InstrumentInfo) -> Columns:
    """Of ``blocks``."""
    squares = {"step_w2": 0, "noise_w2": 0}
    return Columns(
        index_schema(RangeChannels.of(info.accuracy)),
        nulls=("dropped_before",),
        lowest={"first_index": 0, "rows": 1, "offset": 0, "dropped_before": 0, **squares},
        at_most={"first_tick": "last_tick"},
        rising={"first_index": "rows", "first_tick": 0, "last_tick": 0, "offset": 1},
        finite=True,
    )


def arrivals_columns() -> Columns:
    """Of ``arrivals``."""
    return Columns(
        arrivals_schema(),
        lowest={"end_offset": 0, "arrival_ns": 0},
        rising={"end_offset": 0, "arrival_ns": 0},
    )
