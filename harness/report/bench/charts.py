"""The charts of one job: power with the phases as bands, and what every clock exchange says of the fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from device_agents.protocol import Phase
from harness.report.bench.cursor_cells import MAX_CELLS, cursor_cells
from harness.report.charts import Band, Chart, Overlay, Series
from harness.report.page import Fold
from harness.results.decimate import decimate, gaps_ns
from harness.results.tables import JobCapture
from power.energy import WindowEnergy

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAGE_POINTS = 240_000
"""Of all power traces of a page together, about 20 bytes each: 5 MB."""

MAX_POINTS = 20_000
"""Of one trace: ten for every pixel of a wide screen, so that zooming in shows more."""

MAX_JOBS = 200
"""Jobs with charts on a page; each then has at least `PAGE_POINTS` / `MAX_JOBS` points."""

MAX_HOLES = 500

PAGE_CELLS = 12_000
"""Of all power traces of a page together, about 90 bytes each: a megabyte."""

TELEMETRY = {
    "temperature_c": ("Temperature", "°C", 1.0),
    "cpu_freq_hz": ("Clock frequency of the processor", "GHz", 1e-9),
}
"""Quantity of the telemetry to its title, unit and factor."""


def job_folds(jobs: Sequence[JobCapture], *, page_points: int | None = None, opened: int = 1) -> list[Fold]:
    """The charts of each job; the first ``opened`` are to be seen at once. `PAGE_POINTS` by default."""
    shown = jobs[:MAX_JOBS]
    points = min(MAX_POINTS, (page_points or PAGE_POINTS) // max(1, len(shown)))
    cells = min(MAX_CELLS, PAGE_CELLS // max(1, len(shown)))
    return [_fold(job, points, cells, is_open=i < opened) for i, job in enumerate(shown)]


def _fold(job: JobCapture, points: int, cells: int, *, is_open: bool) -> Fold:
    record = job.capture.recording.record
    epochs = [energy for phase, _, energy in job.phases if phase == Phase.EPOCH.value]
    known_j = [energy.energy_j for energy in epochs if energy.energy_j is not None]
    which = "them" if len(known_j) == len(epochs) else f"the {len(known_j)} whose energy is known"
    count = f"{len(epochs)} epoch{'s' * (len(epochs) != 1)}"
    note = f"{count}, {sum(known_j):.4g} J in {which}, {record.info.kind} [{job.origin.value}]"
    return Fold(job.job, note, [power_chart(job, points, cells), *telemetry_charts(job)], is_open)


def overlay_of(folds: Sequence[Fold], jobs: Sequence[JobCapture]) -> Overlay | None:
    """Two recordings over each other: at first two of the same work, if there are."""
    charts = {c.recording: c for fold in folds for c in fold.charts if isinstance(c, Chart) and c.recording}
    work: dict[tuple[str, ...], list[Chart]] = {}
    for job in jobs:
        record = job.capture.record
        if job.job in charts:
            key = (record.device.name, record.workload, record.backend, record.background.name)
            work.setdefault(key, []).append(charts[job.job])
    groups = [*work.values(), [*charts.values()]]
    for first, second in ((group[0], group[1]) for group in groups if len(group) > 1):
        both = [band.label for band in first.bands if band.label in {b.label for b in second.bands}]
        if both:
            marker = PROBE if PROBE in both else both[0]
            return Overlay("Two recordings over each other", (first, second), marker, jobs[0].origin.value)
    return None


PROBE = "probe 1"
"""Where the work begins, by the device's own marker."""


def clock_folds(jobs: Sequence[JobCapture]) -> list[Fold]:
    """What every clock exchange of a job says."""
    asked = [job for job in jobs[:MAX_JOBS] if job.capture.record.pings]
    return [Fold(job.job, "clock exchanges", [clock_chart(job)]) for job in asked]


def telemetry_charts(job: JobCapture) -> list[Chart]:
    """Temperature and clock frequency as the device says, below the power and on the same axis."""
    table = job.capture.telemetry()
    if table is None or not table.num_rows:
        return []
    clock, recording = job.capture.record.clock, job.capture.recording
    host_ns = np.array([clock.to_host_ns(t_ns) for t_ns in table["t_dev_ns"].to_pylist()], np.float64)
    x = (host_ns - recording.record.started_ns) * 1e-9
    found = []
    for kind, (title, unit, scale) in TELEMETRY.items():
        series = [
            Series(name.partition("[")[2].rstrip("]") or title, values * scale)
            for name in table.column_names
            if name.partition("[")[0] == kind
            and np.isfinite(values := table[name].to_numpy().astype(np.float64)).any()
        ]
        if series:
            axis = "time since the recording began (s)"
            found.append(Chart(title, axis, unit, x, series, job.origin.value))
    return found


def power_chart(job: JobCapture, max_points: int, max_cells: int = MAX_CELLS) -> Chart:
    """Power against time with a band for every phase. Where samples are missing there is no line."""
    recording = job.capture.recording
    found = decimate(recording, max_points)
    t_ns, power_w = _with_holes(found.t_ns, found.power_w, gaps_ns(recording, MAX_HOLES))
    cells = cursor_cells(recording, max_cells)
    title = "Power of the device"
    if not found.is_complete:
        title += f", decimated from {found.n_samples:,} samples (lowest and highest of every stretch)"
    return Chart(
        title=title,
        x_label="time since the recording began (s)",
        y_label="power (W)",
        x=(t_ns - recording.record.started_ns).astype(np.float64) * 1e-9,
        series=[Series("power (W)", power_w)],
        origin=job.origin.value,
        bands=[_band(job, *phase) for phase in job.phases],
        max_points=len(t_ns),
        cells=None if cells is None else cells.as_data(),
        recording=job.job,
    )


def _with_holes(
    t_ns: NDArray[np.int64], power_w: NDArray[np.float64], gaps: Sequence[tuple[int, int]]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """A value that is none in the middle of every gap, which interrupts the line."""
    middles_ns = np.array([(start_ns + end_ns) // 2 for start_ns, end_ns in gaps], np.int64)
    at = np.searchsorted(t_ns, middles_ns)
    return np.insert(t_ns, at, middles_ns), np.insert(power_w, at, np.nan)


def _band(job: JobCapture, phase: str, epoch: int, energy: WindowEnergy) -> Band:
    name = "probe" if phase == Phase.EPOCH.value and epoch == 1 else phase
    if energy.energy_j is None or energy.mean_power_w is None:
        note = f"energy not known ({'; '.join(energy.problems)}), {energy.duration_s:.4g} s"
    else:
        note = f"{energy.energy_j:.4g} J, {energy.mean_power_w:.4g} W on average, {energy.duration_s:.4g} s"
        if energy.problems:
            note += f" (not to be used: {'; '.join(energy.problems)})"
    return Band(
        job.seconds(energy.start_ns), job.seconds(energy.end_ns), f"{name} {epoch}" if epoch else name, note
    )


def clock_chart(job: JobCapture) -> Chart:
    """How far each exchange is from the fit; the device read its clock anywhere within the error bar."""
    clock, pings = job.capture.record.clock, job.capture.record.pings
    middles_ns = [(p.sent_ns + p.received_ns) // 2 - clock.to_host_ns(p.t_dev_ns) for p in pings]
    halves_ns = [(p.received_ns - p.sent_ns) // 2 for p in pings]
    residual_ms, half_ms = np.array(middles_ns) * 1e-6, np.array(halves_ns) * 1e-6
    return Chart(
        title=f"Clock: exchanges minus the fit ({clock.method})",
        x_label="exchange, in the order of time",
        y_label="residual (ms)",
        x=np.arange(1.0, len(pings) + 1),
        series=[Series("residual (ms)", residual_ms, points=True, line=False, half_width=half_ms)],
        origin=job.origin.value,
    )
