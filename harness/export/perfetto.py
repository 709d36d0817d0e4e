"""A run as a trace for ui.perfetto.dev and chrome://tracing: phases as slices, power as a counter.

The format is Chrome's Trace Event Format, as an object with ``traceEvents``; times are microseconds. A job
is a process. Its phases are complete events (``X``) of one thread, where events must nest: phases follow each
other. Perfetto keeps a counter's last value until the next, so where samples are missing, a slice of another
thread says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.results.decimate import decimate, gaps_ns
from harness.results.stored_run import StoredRun
from harness.results.tables import JobCapture
from joulefleet import __version__
from joulefleet.errors import DataQualityError
from joulefleet.files import write_atomic
from power.energy import WindowEnergy

MAX_COUNTER_EVENTS = 400_000
"""Of about 80 bytes: 32 MB. chrome://tracing reads up to 256 MB (google/perfetto issue 99)."""

MAX_GAPS = 1_000
_PHASES, _HOST, _METER = 1, 2, 3
_THREADS = {_PHASES: "phases (device)", _HOST: "idle (host)", _METER: "meter"}

Event = dict[str, Any]


def export_perfetto(run: StoredRun, out: Path, *, max_counter_events: int = MAX_COUNTER_EVENTS) -> int:
    """Write the trace of a run; never overwrites. Returns the number of events.

    Raises:
        DataQualityError: The run has no capture.
    """
    if not run.captures:
        why = "".join(f"; {place}: {problem}" for place, problem in list(run.problems.items())[:1])
        raise DataQualityError(
            f"{run.path}: this run of kind {run.record.kind!r} has no finished capture to draw{why}",
            hint="of a bench run, `joulefleet bench status` says why",
        )
    zero_utc = min(job.capture.recording.record.started_utc for job in run.captures)
    each = max(4, max_counter_events // len(run.captures))
    events = [
        event
        for pid, job in enumerate(run.captures, 1)
        for event in _Track(job, pid, zero_utc).events(max_samples=each)
    ]
    trace = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "made_by": f"joulefleet {__version__}",
            "run": run.record.run_id,
            "name": run.record.name,
            "zero_utc": zero_utc.isoformat(),
            "power": "lowest and highest sample of equal stretches, where there are too many",
        },
    }
    write_atomic(out, json.dumps(trace, allow_nan=False, separators=(",", ":")).encode())
    return len(events)


class _Track:
    """The events of one job, placed by the wall clock: the host may have restarted between two recordings."""

    def __init__(self, job: JobCapture, pid: int, zero_utc: datetime) -> None:
        self.job = job
        self.pid = pid
        record = job.capture.recording.record
        self._zero_ns = record.started_ns - round((record.started_utc - zero_utc).total_seconds() * 1e9)

    def events(self, *, max_samples: int) -> Iterator[Event]:
        """All of them."""
        yield from self._names()
        for phase, epoch, energy in self.job.phases:
            yield self._slice(phase, epoch, energy)
        yield from self._unpaired()
        yield from self._gaps()
        yield from self._power(max_samples)

    def _us(self, t_ns: int) -> float:
        return (t_ns - self._zero_ns) / 1000

    def _event(self, phase: str, name: str, tid: int, t_ns: int, **more: Any) -> Event:
        return {"ph": phase, "name": name, "pid": self.pid, "tid": tid, "ts": self._us(t_ns), **more}

    def _names(self) -> Iterator[Event]:
        origin = self.job.origin.value
        about = {
            "process_name": {"name": self.job.job},
            "process_labels": {"labels": origin},
            "process_sort_index": {"sort_index": self.pid},
        }
        for name, args in about.items():
            yield {"ph": "M", "name": name, "pid": self.pid, "tid": 0, "args": args}
        for tid, name in _THREADS.items():
            yield {"ph": "M", "name": "thread_name", "pid": self.pid, "tid": tid, "args": {"name": name}}

    def _slice(self, phase: str, epoch: int, energy: WindowEnergy) -> Event:
        args = {
            "energy_j": energy.energy_j,
            "mean_power_w": energy.mean_power_w,
            "duration_s": energy.duration_s,
            "origin": self.job.origin.value,
            "problems": "; ".join(energy.problems),
        }
        return self._event(
            "X",
            f"{phase} {epoch}" if epoch else phase,
            _HOST if phase == "idle" else _PHASES,
            energy.start_ns,
            dur=(energy.end_ns - energy.start_ns) / 1000,
            cat=phase,
            args={name: value for name, value in args.items() if value not in (None, "")},
        )

    def _unpaired(self) -> Iterator[Event]:
        """Markers of phases that never ended, as instants."""
        started = {}
        for marker in self.job.capture.markers:
            key = (marker.kind, marker.epoch)
            if marker.edge == "start":
                started[key] = marker
            else:
                started.pop(key, None)
        for marker in started.values():
            t_ns = self.job.capture.record.clock.to_host_ns(marker.t_dev_ns)
            yield self._event("i", f"{marker.kind.value} begins", _PHASES, t_ns, s="t", cat=marker.kind.value)

    def _gaps(self) -> Iterator[Event]:
        for start_ns, end_ns in gaps_ns(self.job.capture.recording, MAX_GAPS):
            duration_us = (end_ns - start_ns) / 1000
            yield self._event("X", "no samples", _METER, start_ns, dur=duration_us, cat="gap")

    def _power(self, max_samples: int) -> Iterator[Event]:
        found = decimate(self.job.capture.recording, max_samples)
        for t_ns, power_w in zip(found.t_ns.tolist(), found.power_w.tolist(), strict=True):
            yield self._event("C", "power", _METER, t_ns, args={"W": float(f"{power_w:.6g}")})
