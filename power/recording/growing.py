"""A recording that is being written, read as it grows. The writer notices nothing of it.

The writer appends a row to the index after each batch of samples, about once a second. Here each row and each
batch is read once. Times are those of the moment (the final time base is fitted at the end), so joules so far
are what a person watches, not what is published: they carry no interval.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from joulefleet.errors import JoulefleetError
from joulefleet.records import read_record
from joulefleet.runstore.table import (
    STREAM_SUFFIX,
    follow_stream,
    numbers,
    read_table,
    readable_batch,
    stream_schema,
)
from power.correction import Correction
from power.recording.envelope import CELL_SAMPLES, Envelope, EnvelopeBuilder
from power.recording.records import OPENING_FILE, RecordingOpening

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

CELLS_PER_S = 20
BATCHES_AT_ONCE = 600
"""Read by one `refresh`: ten minutes of samples. Who comes late catches up step by step."""


class GrowingRecording:
    """What is on disk of a recording so far.

    Attributes:
        opening: What was known when it began.
        n_samples: Samples so far.
        lost: Samples known to be lost; None where the instrument cannot tell.
        energy_j: Joules so far, without what fell into gaps.
        power_w: Mean power of the last batch; None before the first.
        last_ns: Host-monotonic time of the last sample; None before the first.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opening = read_record(folder / OPENING_FILE, RecordingOpening)
        calibration = self.opening.calibration
        accuracy = self.opening.info.accuracy
        self._correction = None if calibration is None else Correction(accuracy, calibration)
        self._schema: pa.Schema | None = None
        # Cells of a twentieth of a second: slow instruments are drawn as finely as fast ones.
        cell = round(self.opening.info.rate_hz / CELLS_PER_S)
        self._builder = EnvelopeBuilder(min(CELL_SAMPLES, max(1, cell)))
        self._read = 0
        self._offset = 0
        self._last: tuple[int, float] | None = None
        self.n_samples = 0
        self.lost: int | None = 0
        self.energy_j = 0.0
        self.power_w: float | None = None

    @property
    def last_ns(self) -> int | None:
        """Host-monotonic time of the last sample."""
        return None if self._last is None else self._last[0]

    @property
    def envelope(self) -> Envelope:
        """Lowest and highest power so far, in cells."""
        return self._builder.envelope()

    def refresh(self) -> bool:
        """Read what has come since the last time. Returns whether there was anything."""
        import pyarrow as pa

        samples = self.folder / "samples.arrows"
        with contextlib.suppress(JoulefleetError, OSError, pa.ArrowException):
            self._schema = self._schema or stream_schema(samples)
            rows = self._new_rows()
            if self._schema is None or not rows:
                return False
            with pa.OSFile(str(samples), "rb") as file:
                size = file.size()
                for row, following in zip(rows, [*rows[1:], None], strict=True):
                    end = size if following is None else following["offset"]
                    data = file.read_at(end - row["offset"], row["offset"])
                    self._add(row, readable_batch(pa.py_buffer(data), self._schema))
            return True
        return False

    def _new_rows(self) -> list[dict[str, Any]]:
        """Rows of the index that were not read before, at most `BATCHES_AT_ONCE`."""
        index = self.folder / f"blocks{STREAM_SUFFIX}"
        if not index.exists():  # finished meanwhile
            found: list[dict[str, Any]] = read_table(self.folder, "blocks").slice(self._read).to_pylist()
            return found[:BATCHES_AT_ONCE]
        found = []
        for batch, following in follow_stream(index, self._offset):
            found += batch.to_pylist()
            self._offset = following
            if len(found) >= BATCHES_AT_ONCE:
                break
        return found

    def _add(self, row: dict[str, Any], batch: pa.RecordBatch) -> None:
        current_a, voltage_v = numbers(batch.column("current_a")), numbers(batch.column("voltage_v"))
        if self._correction is not None:
            current_a, voltage_v = self._correction.apply(current_a, voltage_v)
        power_w: NDArray[np.float64] = current_a.astype(np.float64) * voltage_v
        t_ns = np.linspace(row["first_ns"], row["last_ns"], len(power_w)).astype(np.int64)
        if not len(power_w) or not np.isfinite(power_w).all():
            return
        # A time that ran backwards while the clock was being fitted costs less than a picture with a fold.
        t_ns = np.maximum(t_ns, self._last[0] if self._last is not None else t_ns[0])
        self._builder.add(t_ns, power_w)
        self.energy_j += float(np.trapezoid(power_w, t_ns)) * 1e-9
        lost = row["dropped_before"]
        if self._last is not None and lost == 0:
            before_ns, before_w = self._last
            self.energy_j += (before_w + float(power_w[0])) / 2 * (int(t_ns[0]) - before_ns) * 1e-9
        self.lost = None if lost is None or self.lost is None else self.lost + lost
        self.n_samples += len(power_w)
        self.power_w = float(power_w.mean())
        self._last = int(t_ns[-1]), float(power_w[-1])
        self._read += 1
