"""What captures measured as a `Quantity`: mean, n, spreads, 95 % interval.

A repetition is a capture. Epochs of one capture resemble each other (temperature, frequency), so they are
averaged first; with a single capture there is nothing better than to take its epochs for repetitions.

How repetitions and sessions become an interval is `power.profile.quantity_from_sessions`. Systematic parts
(instrument, clock, baseline) come from `power.energy.uncertainty` and are added in squares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from joulefleet.interval import NORMAL_95
from power.energy import (
    MeasuredRecording,
    MeasuredWindow,
    combined_half_width_j,
    gross_energy,
    net_energy,
    unit_half_width_j,
)
from power.profile import Quantity, quantity_from_sessions

if TYPE_CHECKING:
    from numpy.typing import NDArray

InSession = tuple[int, MeasuredRecording]
"""Windows of one capture, and the session that it was made in."""


def energy(found: Sequence[InSession], *, net: bool, between: float | None = None) -> Quantity:
    """Gross or net energy over the captures that have windows.

    Args:
        found: Windows by capture.
        net: Without idle power.
        between: Stated spread between sessions, relative.
    """
    used = [(session, recording) for session, recording in found if recording.windows]
    recordings = [recording for _, recording in used]
    budget = net_energy(recordings) if net else gross_energy(recordings)
    shared = {name: part for name, part in budget.parts.items() if name != "repeats"}
    values_j = [(session, _values_j(recording, net=net)) for session, recording in used]
    found_j = _quantity(values_j, combined_half_width_j(shared), between)
    return found_j.model_copy(update={"instrument_half_width_95": unit_half_width_j(recordings, net=net)})


def power(found: Sequence[InSession], *, between: float | None = None) -> Quantity:
    """Mean power over windows of any length: energy over time, and its interval."""
    used = [(session, recording) for session, recording in found if recording.windows]
    recordings = [recording for _, recording in used]
    budget = gross_energy(recordings)
    shared = {name: part for name, part in budget.parts.items() if name != "repeats"}
    mean_s = float(np.mean([_durations_s(recording).mean() for recording in recordings]))
    systematic_w = combined_half_width_j(shared) / mean_s
    instrument_w = {"instrument_half_width_95": unit_half_width_j(recordings, net=False) / mean_s}
    if len(used) > 1:
        means_w = [(session, np.array([_mean_power_w(recording)])) for session, recording in used]
        return _quantity(means_w, systematic_w, between).model_copy(update=instrument_w)
    ((session, recording),) = used
    windows = _quantity([(session, _powers_w(recording))], systematic_w, between)
    mean_w = {"mean": _mean_power_w(recording)}  # long windows count more
    return windows.model_copy(update=mean_w | instrument_w)


def duration(
    found: Sequence[tuple[int, Sequence[MeasuredWindow]]], *, between: float | None = None
) -> Quantity:
    """Between markers of one clock: scatter, and the time beside the windows that may belong to them."""
    used = [(session, windows) for session, windows in found if windows]
    values_s = [(s, np.array([window.energy.duration_s for window in windows])) for s, windows in used]
    beside_s = [np.mean([window.beside_s for window in windows]) for _, windows in used]
    extent_s = NORMAL_95 * float(np.mean(beside_s)) / math.sqrt(3.0)  # see `power.energy.uncertainty`
    # Of a single value the scatter is not known, nor then an interval.
    return _quantity(values_s, extent_s if sum(len(v) for _, v in values_s) > 1 else None, between)


def scattered(found: Sequence[tuple[int, Sequence[float]]], *, between: float | None = None) -> Quantity:
    """Values of which only the scatter matters, such as durations between markers of one clock."""
    return _quantity([(session, np.array(values)) for session, values in found if len(values)], None, between)


def _quantity(
    found: Sequence[tuple[int, NDArray[np.float64]]], systematic: float | None, between: float | None
) -> Quantity:
    """From the values of each capture; those of a single one are repetitions themselves."""
    by_session: dict[int, list[float]] = {}
    for session, values in found:
        repetitions = [float(values.mean())] if len(found) > 1 else values.tolist()
        by_session.setdefault(session, []).extend(repetitions)
    return quantity_from_sessions(
        list(by_session.values()), systematic_half_width=systematic, between_sessions=between
    )


def _values_j(recording: MeasuredRecording, *, net: bool) -> NDArray[np.float64]:
    values = np.array([e.energy.energy_j or 0.0 for e in recording.windows])
    if not net or recording.baseline is None:
        return values
    middles_ns = [(e.energy.start_ns + e.energy.end_ns) // 2 for e in recording.windows]
    idle_w = np.array([recording.baseline.power_at(middle_ns) for middle_ns in middles_ns])
    result: NDArray[np.float64] = values - idle_w * _durations_s(recording)
    return result


def _durations_s(recording: MeasuredRecording) -> NDArray[np.float64]:
    return np.array([window.energy.duration_s for window in recording.windows])


def _powers_w(recording: MeasuredRecording) -> NDArray[np.float64]:
    return np.array([e.energy.energy_j or 0.0 for e in recording.windows]) / _durations_s(recording)


def _mean_power_w(recording: MeasuredRecording) -> float:
    total_j = math.fsum(window.energy.energy_j or 0.0 for window in recording.windows)
    return total_j / float(_durations_s(recording).sum())
