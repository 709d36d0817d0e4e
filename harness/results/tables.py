"""What a run measured as plain tables: columns with a unit in their name, rows of values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from device_agents.protocol import Phase
from harness.evidence.capture import Capture
from harness.profiles.epochs import CutCapture, Epoch
from harness.rounds.record import read_probing_rounds
from joulefleet.provenance import Origin, weakest
from power import Window
from power.energy import EnergyIndex, WindowEnergy, gross_energy, net_energy

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from harness.results.overview import JobLine


Row = dict[str, Any]

CELL: dict[str, type] = {
    "job": str,
    "device": str,
    "workload": str,
    "dataset": str,
    "backend": str,
    "background": str,
    "load": float,
    "session": int,
    "repetition": int,
    "attempt": int,
    "origin": str,
}
EPOCHS = {
    **CELL,
    "round": int,
    "epoch": int,
    "start_s": float,
    "duration_s": float,
    "energy_j": float,
    "energy_half_width_95_j": float,
    "mean_power_w": float,
    "net_j": float,
    "throttled": bool,
    "usable": bool,
    "problems": str,
}
PHASES = {
    **CELL,
    "phase": str,
    "epoch": int,
    "start_s": float,
    "duration_s": float,
    "energy_j": float,
    "mean_power_w": float,
    "problems": str,
}
MARKERS = {
    "job": str,
    "device": str,
    "seq": int,
    "phase": str,
    "edge": str,
    "epoch": int,
    "t_dev_ns": int,
    "t_ns": int,
    "time_s": float,
    "extra": str,
}
JOBS = {
    "job": str,
    "state": str,
    "attempt": int,
    "stage": str,
    "since_utc": str,
    "error": str,
}

PROBING_ROUNDS = {
    "round": int,
    "repetition": int,
    "m": int,
    "k": int,
    "candidates": str,
    "chosen": str,
    "jobs": str,
}
"""``k`` is missing in vanilla rounds; names are separated by commas."""


@dataclass(frozen=True, slots=True)
class RunTable:
    """One table.

    Attributes:
        name: Of the file that it becomes.
        columns: Name and type of each column; every column may have holes (None).
        rows: Values by column.
    """

    name: str
    columns: Mapping[str, type]
    rows: Sequence[Row]

    def arrow(self) -> pa.Table:
        """As an Arrow table, whose types do not depend on the rows."""
        import pyarrow as pa

        kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
        schema = pa.schema([(name, kinds[kind]) for name, kind in self.columns.items()])
        return pa.Table.from_pylist(list(self.rows), schema=schema)

    def parquet(self) -> bytes:
        """As a Parquet file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(self.arrow(), sink, compression="zstd")
        data: bytes = sink.getvalue().to_pybytes()
        return data

    def frame(self) -> pd.DataFrame:
        """As a pandas data frame."""
        frame: pd.DataFrame = self.arrow().to_pandas()
        return frame


@dataclass(frozen=True)
class JobCapture:
    """A finished capture of a run.

    Attributes:
        job: Name of its folder.
        changed: Files that are no longer what the capture was made of.
    """

    job: str
    capture: Capture
    changed: tuple[str, ...] = ()

    @property
    def origin(self) -> Origin:
        """Where numbers computed from it come from; a capture that was changed proves nothing any more."""
        origin = self.capture.provenance().origin
        return weakest([origin, Origin.IMPORTED]) if self.changed else origin

    @cached_property
    def cut(self) -> CutCapture:
        """Its epochs with their energy."""
        return CutCapture(self.capture)

    @cached_property
    def phases(self) -> tuple[tuple[str, int, WindowEnergy], ...]:
        """Every phase with its epoch and energy, the idle time around the work included, in order of time."""
        named = [(p.phase.value, p.epoch, Window(p.start_ns, p.end_ns)) for p in self.capture.phases()]
        named += [(Phase.IDLE.value, 0, Window(w.start_ns, w.end_ns)) for w in self.capture.record.idle]
        named.sort(key=lambda phase: phase[2].start_ns)
        energies = EnergyIndex(self.capture.recording).integrate([window for *_, window in named])
        return tuple((n, e, energy) for (n, e, _), energy in zip(named, energies, strict=True))

    def seconds(self, t_ns: int) -> float:
        """Host time as seconds after the recording began."""
        return (t_ns - self.capture.recording.record.started_ns) * 1e-9

    def cell(self) -> Row:
        """What was measured."""
        record = self.capture.record
        return {
            "job": self.job,
            "device": record.device.name,
            "workload": record.workload,
            "dataset": record.dataset,
            "backend": record.backend,
            "background": record.background.name,
            "load": record.background.load,
            "session": record.session.number if record.session else None,
            "repetition": record.repetition,
            "attempt": record.attempt,
            "origin": self.origin.value,
        }


def epoch_table(captures: Sequence[JobCapture]) -> RunTable:
    """One row per epoch. Energy is gross, with the 95 % interval of that one window; net is minus idle."""
    rows = [_epoch(job, epoch) for job in captures for epoch in job.cut.epochs]
    return RunTable("epochs", EPOCHS, rows)


def _epoch(job: JobCapture, epoch: Epoch) -> Row:
    energy, cut = epoch.evidence.energy, job.cut
    measured = cut.measured((epoch.evidence,), cut.baseline)
    return {
        **job.cell(),
        "round": epoch.round,
        "epoch": epoch.epoch,
        "start_s": job.seconds(energy.start_ns),
        "duration_s": energy.duration_s,
        "energy_j": energy.energy_j,
        "energy_half_width_95_j": gross_energy([measured]).half_width_j if energy.valid else None,
        "mean_power_w": energy.mean_power_w,
        "net_j": net_energy([measured]).value_j if energy.valid and cut.baseline else None,
        "throttled": epoch.throttled,
        "usable": epoch.usable,
        "problems": "; ".join(energy.problems),
    }


def phase_table(captures: Sequence[JobCapture]) -> RunTable:
    """One row per phase, epochs and idle time included."""
    rows = [
        {
            **job.cell(),
            "phase": phase,
            "epoch": epoch,
            "start_s": job.seconds(energy.start_ns),
            "duration_s": energy.duration_s,
            "energy_j": energy.energy_j,
            "mean_power_w": energy.mean_power_w,
            "problems": "; ".join(energy.problems),
        }
        for job in captures
        for phase, epoch, energy in job.phases
    ]
    return RunTable("phases", PHASES, rows)


def marker_table(captures: Sequence[JobCapture]) -> RunTable:
    """One row per marker, on the device's clock and on the host's."""
    return RunTable("markers", MARKERS, [row for job in captures for row in _markers(job)])


def _markers(job: JobCapture) -> Iterator[Row]:
    clock = job.capture.record.clock
    for marker in job.capture.markers:
        t_ns = clock.to_host_ns(marker.t_dev_ns)
        yield {
            "job": job.job,
            "device": job.capture.record.device.name,
            "seq": marker.seq,
            "phase": marker.kind.value,
            "edge": marker.edge,
            "epoch": marker.epoch,
            "t_dev_ns": marker.t_dev_ns,
            "t_ns": t_ns,
            "time_s": job.seconds(t_ns),
            "extra": json.dumps(marker.extra, sort_keys=True) if marker.extra else "",
        }


def job_table(jobs: Sequence[JobLine]) -> RunTable:
    """One row per job, whatever became of it."""
    return RunTable("jobs", JOBS, [{"job": job.name, **asdict(job)} for job in jobs])


def probing_round_table(run: Path) -> RunTable:
    """One row per finished round of a probing run: who took part, who went on, where their captures are."""
    rows = [
        {
            "round": record.number,
            "repetition": record.repetition,
            "m": record.m,
            "k": record.k,
            "candidates": ",".join(record.candidates),
            "chosen": ",".join(record.chosen),
            "jobs": ",".join(record.jobs),
        }
        for record in read_probing_rounds(run)
    ]
    return RunTable("rounds", PROBING_ROUNDS, rows)
