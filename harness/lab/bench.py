"""A run on the bench as it stands: its jobs, and what their meters say right now."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from harness.bench.journal import JOURNAL, read_steps
from harness.lab.folders import is_finished, recordings
from harness.report.charts import plain_numbers
from harness.results.overview import overview
from joulefleet.errors import JoulefleetError
from joulefleet.records import read_record
from joulefleet.runstore.store import summarise
from power import Severity
from power.recording import RECORDING_FILE, Envelope, GrowingRecording, RecordingRecord

LAST_S = 60.0
POINTS = 600
SILENT_S = 2.0
"""The writer's second, what one instrument keeps back, and a reader's delay: longer is not on the way."""
NOW_S = 0.3
"""What counts as now: long enough for a mean, short enough to be seen within three seconds."""
KEPT = 16
"""Recordings that are followed at the same time; the one that nobody asked about for longest is dropped."""


class Live:
    """Follows recordings that are being written. Each is read once, however many pages are open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._followed: OrderedDict[tuple[Path, int], GrowingRecording] = OrderedDict()

    def recording(self, folder: Path) -> GrowingRecording:
        """One of them, up to date."""
        with self._lock:
            # A new attempt gets a new folder of the same name.
            key = folder, (folder / "opening.json").stat().st_ino
            growing = self._followed.pop(key, None) or GrowingRecording(folder)
            self._followed[key] = growing
            while len(self._followed) > KEPT:
                self._followed.popitem(last=False)
            while growing.refresh():
                pass
            return growing

    def run(self, path: Path, *, whole: bool) -> dict[str, Any]:
        """A run and its recordings, for the page.

        Args:
            path: The run.
            whole: Power from the first sample on, instead of the last minute.
        """
        summary = summarise(path)
        stages = _stages(path)
        found = [
            {"recording": str(folder.relative_to(path)), "finished": is_finished(folder)}
            for folder in recordings(path)
        ]
        live = [
            self._now(path, str(one["recording"]), stages, whole=whole)
            for one in found
            if summary.alive and not one["finished"] and not str(one["recording"]).startswith("failed")
        ]
        jobs = _jobs(path, stages)
        running = {job["name"] for job in jobs["jobs"] if job["state"] == "running"}
        ended = [one for one in found if one["finished"] and Path(str(one["recording"])).name in running]
        live += [one for name in ended for one in _cut_short(path, str(name["recording"]))]
        return {"state": summary.state, **jobs, "recordings": found, "live": live}

    def _now(self, run: Path, name: str, stages: list[dict[str, Any]], *, whole: bool) -> dict[str, Any]:
        try:
            growing = self.recording(run / name)
        except (JoulefleetError, OSError) as error:
            return {"recording": name, "problem": str(error)}
        opening, envelope, last_ns = growing.opening, growing.envelope, growing.last_ns
        problems = _problems(growing)
        if last_ns is not None and not whole:
            envelope = envelope.within(last_ns - round(LAST_S * 1e9), last_ns)
        began_ns, began_s = opening.started_ns, opening.started_utc.timestamp()
        job = Path(name).name
        own = [one for one in stages if one["job"] == job and one["t_s"] >= began_s - 1]
        return {
            "recording": name,
            "origin": "emulated" if opening.info.emulated else "measured",
            "power_w": growing.power_w,
            "energy_j": growing.energy_j,
            "samples": growing.n_samples,
            "lost": growing.lost,
            "seconds": None if last_ns is None else (last_ns - began_ns) * 1e-9,
            "problem": " ".join(problems),
            "stages": [{"stage": one["stage"], "from_s": one["t_s"] - began_s} for one in own],
            "trace": trace_data(envelope, began_ns),
        }


def _cut_short(run: Path, name: str) -> list[dict[str, Any]]:
    """A recording that failed while its job goes on, which learns of it when its round is over."""
    try:
        findings = read_record(run / name / RECORDING_FILE, RecordingRecord).findings
    except (JoulefleetError, OSError):  # moved aside meanwhile
        return []
    errors = [one.message for one in findings if one.severity is Severity.ERROR]
    return [{"recording": name, "problem": f"The recording has ended: {errors[0]}"}] if errors else []


def _problems(growing: GrowingRecording) -> list[str]:
    """What a person should go and look at."""
    info, last_ns = growing.opening.info, growing.last_ns
    if last_ns is None:
        return []
    silent_s = (time.monotonic_ns() - last_ns) * 1e-9
    found = []
    # Some instruments have a reading per second, or fewer.
    if silent_s > max(SILENT_S, 1.5 + 2 / info.rate_hz):
        found.append(f"No sample for {silent_s:.1f} s: is the meter connected?")
    now = growing.envelope.within(last_ns - round(NOW_S * 1e9), last_ns)
    config = growing.opening.config
    volts = 1.0 if config is None else config.voltage_v
    floor_w = min(part.floor_a for part in info.accuracy.current) * volts
    now_w = float((now.low_w + now.high_w).mean()) / 2  # noise is as much above as below
    if now_w < -floor_w:
        found.append("The power is negative: a charger, or swapped leads?")
    elif now_w <= floor_w:
        found.append("No current flows: a loose lead, or a charger that feeds the device?")
    return found


def trace_data(envelope: Envelope, began_ns: int, points: int = POINTS) -> dict[str, Any]:
    """Lowest and highest power against seconds, for the page."""
    shown = envelope.merged(points)
    middle_s = ((shown.first_ns - began_ns) / 2 + (shown.last_ns - began_ns) / 2) * 1e-9
    return {
        "t": [round(t, 6) for t in middle_s.tolist()],
        "low": plain_numbers(shown.low_w.astype(np.float64)),
        "high": plain_numbers(shown.high_w.astype(np.float64)),
    }


def _jobs(path: Path, stages: list[dict[str, Any]]) -> dict[str, Any]:
    """Jobs of a bench run with the time that is left; other kinds of runs have rounds and no plan of jobs."""
    try:
        found = overview(path)
    except JoulefleetError as error:
        return {"jobs": [], "counts": {}, "waits_for": "", "left_s": None, "note": error.message}
    counts = found.counts()
    done = counts.get("finished", 0) + counts.get("failed", 0)
    left = sum(counts.get(state, 0) for state in ("pending", "running", "waiting"))
    began_s = stages[0]["t_s"] if stages else math.nan
    pace_s = (datetime.now(UTC).timestamp() - began_s) / done if done else math.nan
    return {
        "jobs": [asdict(job) for job in found.jobs],
        "counts": counts,
        "waits_for": found.waits_for,
        "left_s": pace_s * left if found.state == "running" and math.isfinite(pace_s) else None,
    }


def _stages(path: Path) -> list[dict[str, Any]]:
    """When which stage of which job began, by the host's clock."""
    return [
        {
            "job": record["job"],
            "stage": record["stage"],
            "t_s": datetime.fromisoformat(record["utc"]).timestamp(),
        }
        for record in read_steps(path / f"{JOURNAL}.jsonl")
        if record["event"] == "stage"
    ]
