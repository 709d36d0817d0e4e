"""What two cursors on a power trace need to say joules with their interval: sums over many short cells.

A page cannot hold every sample. It holds what `power.energy.measure_energy` adds up, cell by cell: energies
by measuring range, charge, variance of noise and gaps. Sums over cells give the same energy and the same
interval as the command line does for the same stretch (`static/report.js` adds them up).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.report.charts import plain_numbers
from power import Window
from power.energy import EnergyIndex, MeasuredWindow, error_factors, measure_windows
from power.recording import Recording

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_CELLS = 400
"""Of one trace: cursors stop at their edges."""


@dataclass(frozen=True, slots=True)
class CursorCells:
    """A recording in cells.

    Attributes:
        edges_s: Where they begin and end, seconds since the first sample; one more than cells.
        first_s: The first sample, since the recording began.
        measured: Each cell.
        low_w: Lowest power of each.
        high_w: Highest.
        factors: See `power.energy.error_factors`; rows of the work alone.
    """

    edges_s: NDArray[np.float64]
    first_s: float
    measured: tuple[MeasuredWindow, ...]
    low_w: NDArray[np.float64]
    high_w: NDArray[np.float64]
    factors: NDArray[np.float64]

    def as_data(self) -> dict[str, Any]:
        """JSON for the page's script; a cell whose energy is not known is null."""
        energies = [cell.energy for cell in self.measured]
        sums = [
            None if e.energy_j is None or not e.valid
            else [*e.range_energy_j, *e.range_volt_s, e.energy_j, e.charge_c or 0.0]
            for e in energies
        ]  # fmt: skip
        variances = [cell.noise_j**2 + cell.loss_j**2 for cell in self.measured]
        return {
            "edges": [round(edge, 6) for edge in self.edges_s.tolist()],
            "first": self.first_s,
            "ranges": len(energies[0].range_energy_j),
            "sums": [None if row is None else [float(f"{v:.9g}") for v in row] for row in sums],
            "variance": [float(f"{v:.4g}") for v in variances],
            "low": plain_numbers(self.low_w),
            "high": plain_numbers(self.high_w),
            "factors": self.factors.tolist(),
        }


def cursor_cells(recording: Recording, max_cells: int = MAX_CELLS) -> CursorCells | None:
    """Cut a recording into cells of equal length; None if it has too few samples."""
    if recording.record.n_samples < 2 or max_cells < 2:
        return None
    index = EnergyIndex(recording)
    first_ns, last_ns = int(index.first_ns[0]), int(index.last_ns[-1])
    # Whole microseconds: what the page shows is then just what the command line is given.
    edges_us = np.unique(np.linspace(0, (last_ns - first_ns) // 1000, max_cells + 1).astype(np.int64))
    edges_ns = first_ns + 1000 * edges_us
    windows = [Window(int(a), int(b)) for a, b in pairwise(edges_ns)]
    measured = measure_windows(recording, windows, sync_uncertainty_s=0.0)
    low_w, high_w = _extremes_w(recording, edges_ns)
    factors = error_factors(recording.info.accuracy)
    ranges = len(recording.info.accuracy.current)
    return CursorCells(
        edges_us.astype(np.float64) * 1e-6,
        (first_ns - recording.record.started_ns) * 1e-9,
        measured,
        low_w,
        high_w,
        factors[: 2 * ranges + 2 + ranges + 1],
    )


def _extremes_w(
    recording: Recording, edges_ns: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The lowest and highest power of each cell, of all its samples: what is drawn has only some of them."""
    low_w, high_w = np.full(len(edges_ns) - 1, np.inf), np.full(len(edges_ns) - 1, -np.inf)
    for block in recording.blocks():
        power_w = block.current_a.astype(np.float64) * block.voltage_v
        starts = np.append(0, np.searchsorted(block.t_ns, edges_ns[1:-1]))
        held = np.flatnonzero(np.diff(starts, append=len(power_w)))
        low_w[held] = np.minimum(low_w[held], np.minimum.reduceat(power_w, starts[held]))
        high_w[held] = np.maximum(high_w[held], np.maximum.reduceat(power_w, starts[held]))
    return low_w, high_w
