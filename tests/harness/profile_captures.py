"""Captures written to disk with a power that is known: levels in watts between markers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.signal import lfilter

from device_agents.protocol import EpochMarker, Phase
from harness.evidence.capture import (
    MARKERS_FILE,
    Background,
    Capture,
    DeviceFacts,
    HostWindow,
    open_capture,
    write_capture,
)
from harness.evidence.clock_fit import ClockFit
from joulefleet.records import read_record, write_record
from joulefleet.runstore import Journal
from power.model import Accuracy, InstrumentInfo, Loss, RangeAccuracy, SampleBlock
from power.recording import RECORDING_FILE, RecordingRecord, RecordingWriter
from power.timebase import Timebase

RATE_HZ = 1000
PERIOD_NS = 10**9 // RATE_HZ
SUPPLY_V = 4.0
IDLE_W = 0.8
CLOCK = ClockFit(
    offset_ns=0, reference_ns=0, tau_s=0.0, residual_s=0.0, sync_uncertainty_s=1e-4, method="pattern"
)
"""Of one clock for everything, behind a supply that follows at once."""


def accuracy(gain_rel: float = 0.0) -> Accuracy:
    """An instrument with one range."""
    return Accuracy(
        current=(RangeAccuracy(name="only", gain_rel=gain_rel, offset_a=0.0),),
        voltage_gain_rel=0.0,
        voltage_offset_v=0.0,
        source="test",
    )


@dataclass
class Stretch:
    """A level of power for some time, perhaps as a phase."""

    watts: float
    seconds: float
    phase: Phase | None = None
    epoch: int = 0
    extra: dict[str, Any] = field(default_factory=dict)


def one_round(
    epochs_s: list[float],
    *,
    train_w: float = 3.0,
    load_w: float | None = None,
    wait_s: float = 0.5,
    transfers: bool = True,
) -> list[Stretch]:
    """Idle, a round, idle."""
    download = [Stretch(1.5, 0.4, Phase.DOWNLOAD, extra={"bytes": 1000})] if transfers else []
    upload = [Stretch(2.0, 0.3, Phase.UPLOAD, extra={"bytes": 900})] if transfers else []
    load = [Stretch(load_w, 1.0, Phase.LOAD)] if load_w is not None else []
    epochs = [Stretch(train_w, seconds, Phase.EPOCH, n) for n, seconds in enumerate(epochs_s, 1)]
    wait = [Stretch(1.0, wait_s, Phase.WAIT)]
    idle = Stretch(IDLE_W, 2.0, Phase.IDLE)
    gap = Stretch(IDLE_W, 0.1)
    return [idle, gap, *download, *load, *epochs[:1], *wait, *epochs[1:], *upload, gap, idle]


def write(
    folder: Path,
    stretches: list[Stretch],
    *,
    gain_rel: float = 0.0,
    emulated: bool = True,
    noise_w: float = 0.0,
    rng: np.random.Generator | None = None,
    clock: ClockFit = CLOCK,
    lag_s: float = 0.0,
    began_utc: datetime | None = None,
    silent_ns: int = 0,
    **facts: Any,
) -> Capture:
    """Store a capture; ``lag_s`` is the time constant of the supply, ``facts`` go to its record.

    ``began_utc`` is when the recording began, now if None; the first sample comes ``silent_ns`` later.
    """
    folder.mkdir(parents=True)
    counts = [round(s.seconds * RATE_HZ) for s in stretches]
    watts = np.repeat([s.watts for s in stretches], counts)
    if noise_w:
        assert rng is not None
        watts = watts + rng.normal(0, noise_w, len(watts))
    if lag_s:
        keep = np.exp(-1 / (RATE_HZ * lag_s))
        watts, _ = lfilter([1 - keep], [1, -keep], watts, zi=[keep * watts[0]])
    edges_ns = np.concatenate(([0], np.cumsum(counts))) * PERIOD_NS
    info = InstrumentInfo(
        kind="synthetic", emulated=emulated, rate_hz=RATE_HZ, tick_hz=RATE_HZ, uniform_ticks=True,
        accuracy=accuracy(gain_rel), loss=Loss.COUNTED,
    )  # fmt: skip
    writer = RecordingWriter(folder, info, None, started_ns=-silent_ns)
    n = len(watts)
    ticks = np.arange(n)
    writer.append(SampleBlock(ticks * PERIOD_NS, ticks, watts / SUPPLY_V, np.full(n, SUPPLY_V), 0, 0))
    writer.close(Timebase(ticks=(0, n), host_ns=(0, n * PERIOD_NS)), ())
    if began_utc is not None:
        record = read_record(folder / RECORDING_FILE, RecordingRecord)
        moved = record.model_copy(update={"started_utc": began_utc})
        write_record(folder / RECORDING_FILE, moved, replace=True)
    # Markers lie half a sample early, where a level changes between two samples.
    spans = [(int(a) - PERIOD_NS // 2, int(b) - PERIOD_NS // 2) for a, b in pairwise(edges_ns)]
    _write_markers(folder, stretches, spans)
    idle = [
        HostWindow(start_ns=a + 10 * PERIOD_NS, end_ns=b - 10 * PERIOD_NS)
        for s, (a, b) in zip(stretches, spans, strict=True)
        if s.phase is Phase.IDLE
    ]
    defaults: dict[str, Any] = {
        "capture_id": folder.name,
        "device": DeviceFacts(name="board", transport="ssh"),
        "workload": "mnist-lenet5",
        "dataset": "mnist",
        "backend": "torch",
        "synthetic_data": False,
        "samples": 600,
        "batch_size": 32,
        "local_epochs": max(s.epoch for s in stretches),
        "clock": clock,
        "idle": tuple(idle),
    }
    write_capture(folder, **{**defaults, **facts})
    return open_capture(folder)


def _write_markers(folder: Path, stretches: list[Stretch], spans: list[tuple[int, int]]) -> None:
    seq = 0
    with Journal(folder / MARKERS_FILE) as journal:
        for stretch, span in zip(stretches, spans, strict=True):
            if stretch.phase in (None, Phase.IDLE):
                continue
            for edge, t_ns in zip(("start", "end"), span, strict=True):
                marker = EpochMarker(
                    kind=stretch.phase,
                    edge=edge,
                    epoch=stretch.epoch,
                    t_dev_ns=t_ns,
                    seq=seq,
                    extra=stretch.extra,
                )
                journal.append(marker.model_dump(mode="json"))
                seq += 1


def load(share: float, name: str = "", kind: str = "cpu") -> Background:
    """A background load."""
    return Background(name=name or f"{kind}-{share:g}", kind=kind, cores=1, cpu_share=share, load=share)
