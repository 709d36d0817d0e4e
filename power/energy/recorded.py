"""`measure_energy`: joules of a recording, or of a stretch of it, with their interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from joulefleet.errors import ConfigError, DataQualityError
from joulefleet.interval import Interval
from power.energy.measurement import measure_windows
from power.energy.uncertainty import EnergyBudget, MeasuredRecording, gross_energy
from power.energy.windows import Window, WindowEnergy
from power.recording.reader import Recording, open_recording


@dataclass(frozen=True, slots=True)
class RecordedEnergy:
    """What a stretch of a recording took.

    Attributes:
        window: The stretch, in the recording's own time.
        energy: Joules, coulombs, seconds, mean power, loss; its problems say why it must not be used.
        budget: What the interval is made of; None where the energy must not be used.
    """

    window: Window
    energy: WindowEnergy
    budget: EnergyBudget | None

    @property
    def interval(self) -> Interval:
        """Joules with their 95 % interval; NaN where they must not be used."""
        return self.budget.interval if self.budget else Interval(math.nan)


def measure_energy(
    recording: Recording | Path | str, start_s: float | None = None, end_s: float | None = None
) -> RecordedEnergy:
    """Gross energy of a recording with its 95 % interval.

    Examples:
        >>> measure_energy("first", 1.0, 3.5).interval  # from second 1 to second 3.5

    Args:
        recording: It, or its folder.
        start_s: Begin here, counted from the first sample; None for the first sample.
        end_s: End here; None for the last sample, or for its end if samples are averages.

    Raises:
        ConfigError: There is no such stretch.
        DataQualityError: It holds no samples.
    """
    if not isinstance(recording, Recording):
        recording = open_recording(Path(recording))
    window = _window(recording, start_s, end_s)
    # The window is in the recording's own time, so there is no clock to align.
    (measured,) = measure_windows(recording, [window], sync_uncertainty_s=0.0)
    usable = measured.energy.valid
    session = MeasuredRecording((measured,), recording.info.accuracy, notes=recording.notes)
    budget = gross_energy([session]) if usable else None
    return RecordedEnergy(window, measured.energy, budget)


def _window(recording: Recording, start_s: float | None, end_s: float | None) -> Window:
    if not len(recording):
        raise DataQualityError(f"{recording.folder}: holds no samples", hint="record again")
    first_ns = int(recording.block(0).t_ns[0])
    last_ns = int(recording.block(len(recording) - 1).t_ns[-1]) + recording.record.info.hold_ns
    length_s = (last_ns - first_ns) * 1e-9
    # Compared as they were given: what is no number has no nanoseconds.
    if not all(math.isfinite(t_s) for t_s in (start_s, end_s) if t_s is not None):
        raise _no_time(recording, start_s or 0.0, length_s if end_s is None else end_s, length_s)
    start_ns = first_ns if start_s is None else first_ns + round(start_s * 1e9)
    end_ns = last_ns if end_s is None else first_ns + round(end_s * 1e9)
    if not first_ns <= start_ns < end_ns <= last_ns:
        raise _no_time(recording, (start_ns - first_ns) * 1e-9, (end_ns - first_ns) * 1e-9, length_s)
    return Window(start_ns, end_ns)


def _no_time(recording: Recording, start_s: float, end_s: float, length_s: float) -> ConfigError:
    return ConfigError(
        f"{recording.folder}: no time from {start_s:g} s to {end_s:g} s", hint=f"it lasts {length_s:.3f} s"
    )
