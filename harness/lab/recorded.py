"""Finished recordings: any stretch of them drawn at once, and its joules as the command line gives them."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.lab.bench import trace_data
from joulefleet.errors import JoulefleetError, StorageError
from joulefleet.files import cache_folder, new_file
from power import measure_energy
from power.recording import (
    RECORDING_FILE,
    Envelope,
    Recording,
    extremes_w,
    open_recording,
    recording_envelope,
    view,
)

KEPT = 8
LARGEST_BYTES = 1 << 28
"""Of a stored envelope: that of a week at 5 kHz."""
LONGEST_S = 1e9
"""What is asked for is counted in nanoseconds."""


@dataclass(slots=True)
class _Opened:
    """One of them, once it was read."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    value: tuple[Recording, Envelope] | None = None


class OpenRecordings:
    """Recordings that were asked for, with their envelopes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[Path, int], _Opened] = OrderedDict()

    def trace(self, folder: Path, start_s: float, end_s: float, points: int) -> dict[str, Any]:
        """Power between two moments, in seconds from the first sample."""
        recording, envelope = self._opened(folder)
        if not len(envelope):
            return {"length_s": 0.0, **trace_data(envelope, 0)}
        first_ns = int(envelope.first_ns[0])
        length_s = (int(envelope.last_ns[-1]) - first_ns) * 1e-9
        start_ns = first_ns + round(max(0.0, start_s) * 1e9)
        end_ns = first_ns + round(min(length_s, end_s) * 1e9)
        shown = view(recording, envelope, start_ns, end_ns, points)
        return {
            "length_s": length_s,
            "origin": recording.provenance(folder.name).origin.value,
            **trace_data(shown, first_ns, points),
        }

    def energy(self, folder: Path, start_s: float, end_s: float) -> dict[str, Any]:
        """Joules between two moments, with their interval: what `joulefleet meter show` prints."""
        recording, envelope = self._opened(folder)
        found = measure_energy(recording, start_s, None if math.isinf(end_s) else end_s)
        extremes = extremes_w(recording, envelope, found.window.start_ns, found.window.end_ns)
        known = found.budget is not None
        return {
            "energy_j": found.interval.mean if known else None,
            "low_j": found.interval.low if known else None,
            "high_j": found.interval.high if known else None,
            "mean_w": found.energy.mean_power_w if known else None,
            "min_w": extremes[0] if extremes else None,
            "max_w": extremes[1] if extremes else None,
            "problems": list(found.energy.problems),
        }

    def _opened(self, folder: Path) -> tuple[Recording, Envelope]:
        # A new attempt gets a new folder of the same name.
        key = folder, (folder / RECORDING_FILE).stat().st_mtime_ns
        with self._lock:
            found = self._open[key] = self._open.pop(key, _Opened())
            while len(self._open) > KEPT:
                self._open.popitem(last=False)
        with found.lock:  # its own: a day takes a while, and others are looked at meanwhile
            if found.value is None:
                recording = open_recording(folder)
                found.value = recording, _envelope(recording)
            return found.value


def _envelope(recording: Recording) -> Envelope:
    """Made once, then kept among the user's caches under the hash of what it was made of.

    Not in the run: the lab writes nothing there, and what lies in a foreign folder could be a picture of
    something else.
    """
    samples = recording.record.file_sha256.get("samples.arrows", "")
    calibration = recording.provenance("lab").calibration_sha256 or "none"
    if not samples or recording.record.n_samples < 1_000_000:
        return recording_envelope(recording)
    path = cache_folder() / "envelopes" / f"{samples[:32]}-{calibration[:16]}.npy"
    columns = ("first_ns", "last_ns", "low_w", "high_w")
    try:
        if path.stat().st_size <= LARGEST_BYTES:
            stored = np.load(path, allow_pickle=False)
            return Envelope(*(np.ascontiguousarray(stored[name]) for name in columns))
    except (OSError, ValueError, KeyError, IndexError):
        pass
    made = recording_envelope(recording)
    rows = np.empty(len(made), [(name, getattr(made, name).dtype) for name in columns])
    for name in columns:
        rows[name] = getattr(made, name)
    try:
        path.parent.mkdir(exist_ok=True)
        with new_file(path, replace=True) as file:
            np.save(file, rows, allow_pickle=False)
    except (OSError, JoulefleetError):  # a cache that cannot be written is no reason to show nothing
        pass
    return made


def seconds(text: str | None, default: float) -> float:
    """A time that a page asked for.

    Raises:
        StorageError: It is no time.
    """
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value) or (text is not None and abs(value) > LONGEST_S):
        raise StorageError("not a time")
    return value
