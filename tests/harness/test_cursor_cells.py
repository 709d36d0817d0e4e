"""What stands between two cursors: of all samples, though the trace is drawn from few of them."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from harness.report.bench.cursor_cells import cursor_cells
from tests.power.synthetic import block, samples_of, write_recording

CURRENT = np.random.default_rng(7).gamma(2.0, 0.2, 9_000)


@pytest.mark.parametrize("cells", [2, 23, 400])
def test_a_cell_has_the_extremes_of_all_its_samples(tmp_path: Path, cells: int) -> None:
    recording = write_recording(
        tmp_path / "r",
        [
            block(CURRENT[:2_000], 4.0),
            block(CURRENT[2_000:5_000], 3.8, first_index=2_000),
            block(CURRENT[5_000:], 4.1, first_index=5_040, dropped_before=40),
        ],
    )
    found = cursor_cells(recording, cells)
    assert found is not None
    samples = samples_of(recording.blocks())
    power_w = samples["current_a"].astype(np.float64) * samples["voltage_v"]
    since_us = (samples["t_ns"] - samples["t_ns"][0]) / 1000
    assert len(found.low_w) == len(found.edges_s) - 1 <= cells
    edges = [*np.round(found.edges_s[:-1] * 1e6), np.inf]
    for number, (start, end) in enumerate(pairwise(edges)):
        inside = power_w[(since_us >= start) & (since_us < end)]
        known = (inside.min(), inside.max()) if len(inside) else (np.inf, -np.inf)
        assert (found.low_w[number], found.high_w[number]) == known
