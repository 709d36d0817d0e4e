"""Decode a recording's raw bytes again: the proof that its samples are what the instrument said.

Bytes are fed in the portions in which they had been decoded, with the arrival times of then, so that even
a decoder that looks at the host's clock comes to the same samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from joulefleet.errors import StorageError
from joulefleet.registry import Registry
from joulefleet.runstore.table import iter_batches, table_path
from power.model import Finding, InstrumentInfo
from power.recording.reader import Recording
from power.recording.records import RAW_FILE
from power.recording.tables import arrivals_columns
from power.wire.decoder import Decoded, Decoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

DecoderFactory = Callable[[InstrumentInfo], Decoder]

DECODERS: Registry[DecoderFactory] = Registry(
    what="decoder of raw bytes",
    group="joulefleet.power_decoders",
    builtin={
        "monsoon-lvpm": ("power.meters.monsoon_lvpm:decoder_for", "Monsoon LVPM, serial"),
        "monsoon-hvpm": ("power.meters.monsoon_hvpm:decoder_for", "Monsoon HVPM, USB"),
        "ina219": ("power.recording.redecode:ina219_decoder", "INA219, framed protocol"),
        "ina219-csv": ("power.recording.redecode:ina219_csv_decoder", "INA219, sketches that print CSV"),
    },
)
"""By the kind of the instrument. A factory finds in `InstrumentInfo.facts` what its decoder needs."""


def ina219_decoder(_: InstrumentInfo) -> Decoder:
    """The decoder of the framed protocol; a run's bytes begin with a header that tells everything."""
    from power.wire.ina219.decoder import Ina219Decoder

    return Ina219Decoder()


def ina219_csv_decoder(info: InstrumentInfo) -> Decoder:
    """The decoder of loose lines."""
    from power.wire.ina219.csv_decoder import SHUNT_TOLERANCE, CsvScale, Ina219CsvDecoder
    from power.wire.ina219.csv_rows import CsvFormat

    shunt_ohm, assumed_v = info.facts.get("shunt_ohm"), info.facts.get("assumed_voltage_v")
    scale = CsvScale(
        shunt_ohm=None if shunt_ohm is None else float(shunt_ohm),
        assumed_voltage_v=None if assumed_v is None else float(assumed_v),
        shunt_tolerance=float(info.facts.get("shunt_tolerance", SHUNT_TOLERANCE)),
    )
    return Ina219CsvDecoder(CsvFormat(str(info.facts["format"])), scale, info.rate_hz)


@dataclass(frozen=True, slots=True)
class RedecodeComparison:
    """Stored samples against those decoded again.

    Attributes:
        n_stored: Samples in the recording.
        n_decoded: Samples in its bytes; a salvaged recording may lack the last second of them.
        first_difference: Number of the first stored sample that its bytes do not give, or None.
        findings: What the decoder noticed this time.
    """

    n_stored: int
    n_decoded: int
    first_difference: int | None
    findings: tuple[Finding, ...]


def redecode(recording: Recording, decoder: Decoder) -> Iterator[Decoded]:
    """The samples in a recording's raw bytes, in bounded memory."""
    for data, arrival_ns in raw_portions(recording):
        yield from decoder.feed(data, arrival_ns)
    yield from decoder.finish()


def raw_portions(recording: Recording) -> Iterator[tuple[bytes, int]]:
    """The raw bytes in the portions in which they were decoded, each with its arrival time.

    Raises:
        StorageError: The recording has no raw bytes, or fewer than there were.
    """
    path = recording.folder / RAW_FILE
    if not path.exists():
        raise StorageError(
            f"{recording.folder}: no raw bytes", hint="imported and replayed recordings have none"
        )
    offset = arrival_ns = 0
    with path.open("rb") as file:
        for batch in iter_batches(table_path(recording.folder, "arrivals"), arrivals_columns()):
            for row in batch.to_pylist():
                data = file.read(max(0, row["end_offset"] - offset))
                offset += len(data)
                if offset != row["end_offset"]:
                    raise StorageError(f"{path}: ends at byte {offset} of {row['end_offset']}")
                arrival_ns = row["arrival_ns"]
                yield data, arrival_ns
        # A killed recording has bytes whose arrival was not stored yet.
        rest = file.read()
        if rest:
            yield rest, arrival_ns


def compare_with_raw(recording: Recording) -> RedecodeComparison:
    """Decode the raw bytes again and compare every sample bit for bit."""
    info = recording.record.info
    decoder = DECODERS.load(info.kind)(info)
    again = _Rows(redecode(recording, decoder))
    first_difference: int | None = None
    for block in recording.as_stored().blocks():
        stored = np.column_stack(
            [block.ticks, _bits(block.current_a), _bits(block.voltage_v)],
        )
        decoded = again.take(len(block))
        if first_difference is None and not np.array_equal(stored, decoded):
            first_difference = block.first_index + _first_unequal(stored, decoded)
    n_decoded = again.taken + again.count_rest()
    return RedecodeComparison(recording.record.n_samples, n_decoded, first_difference, decoder.findings)


class _Rows:
    """Decoded samples as rows (tick, current bits, voltage bits), handed out in any portions."""

    def __init__(self, decoded: Iterator[Decoded]) -> None:
        self._decoded = decoded
        self._rest: NDArray[np.int64] = np.empty((0, 3), np.int64)
        self.taken = 0

    def take(self, rows: int) -> NDArray[np.int64]:
        """So many rows, or fewer at the end."""
        parts, have = [self._rest], len(self._rest)
        while have < rows and (part := next(self._decoded, None)) is not None:
            parts.append(np.column_stack([part.ticks, _bits(part.current_a), _bits(part.voltage_v)]))
            have += len(part.ticks)
        whole = np.concatenate(parts)
        self._rest = whole[rows:]
        self.taken += min(rows, have)
        return whole[:rows]

    def count_rest(self) -> int:
        """How many are left."""
        return len(self._rest) + sum(len(part.ticks) for part in self._decoded)


def _bits(values: NDArray[np.floating]) -> NDArray[np.int64]:
    """The bits of each value as it is stored: equal bits are a stronger claim than equal numbers."""
    return np.ascontiguousarray(values, np.float32).view(np.int32).astype(np.int64)


def _first_unequal(stored: NDArray[np.int64], decoded: NDArray[np.int64]) -> int:
    common = min(len(stored), len(decoded))
    unequal = np.flatnonzero((stored[:common] != decoded[:common]).any(axis=1))
    return int(unequal[0]) if len(unequal) else common
