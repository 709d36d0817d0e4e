"""Recordings and meters made of known numbers, through the real capture pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from power.meter import MeterConfig
from power.meters.streaming import StreamingMeter
from power.model import Accuracy, InstrumentInfo, RangeAccuracy, SampleBlock
from power.recording import Recording, RecordingWriter, open_recording
from power.timebase import Timebase
from power.wire.decoder import Decoded

FRAME = np.dtype([("tick", "<i8"), ("current_a", "<f4"), ("voltage_v", "<f4")])
START_NS = 5_000_000_000_000


def config(**values: Any) -> MeterConfig:
    limits = {"kind": "synthetic", "voltage_v": 4.0, "voltage_max_v": 4.3, "current_limit_a": 3.0}
    return MeterConfig(**{**limits, **values})


def info(**values: Any) -> InstrumentInfo:
    accuracy = Accuracy(
        current=(RangeAccuracy(name="all", gain_rel=0.01, offset_a=0.001),),
        voltage_gain_rel=0.01,
        voltage_offset_v=0.01,
        source="test",
    )
    facts = {
        "kind": "synthetic",
        "emulated": True,
        "rate_hz": 1000.0,
        "tick_hz": 1000.0,
        "uniform_ticks": True,
        "accuracy": accuracy,
    }
    return InstrumentInfo(**{**facts, **values})


def block(
    current_a: Any, voltage_v: Any = 4.0, *, first_index: int = 0, dropped_before: int | None = 0
) -> SampleBlock:
    current = np.array(current_a, np.float32)
    ticks = first_index + np.arange(len(current), dtype=np.int64)
    return SampleBlock(
        t_ns=START_NS + ticks * 1_000_000,
        ticks=ticks,
        current_a=current,
        voltage_v=np.broadcast_to(np.float32(voltage_v), current.shape).copy(),
        first_index=first_index,
        dropped_before=dropped_before,
    )


def timebase(samples: int, *, tick_hz: float = 1000.0, **values: Any) -> Timebase:
    host_ns = (START_NS, START_NS + round(samples / tick_hz * 1e9))
    return Timebase(ticks=(0, samples), host_ns=host_ns, **values)


def write_recording(folder: Path, blocks: Iterable[SampleBlock], **info_values: Any) -> Recording:
    folder.mkdir(parents=True, exist_ok=True)
    writer = RecordingWriter(folder, info(**info_values), config(), started_ns=START_NS)
    end = 1
    for part in blocks:
        writer.append(part)
        end = int(part.ticks[-1]) + 1
    writer.close(timebase(end), ())
    return open_recording(folder)


def samples_of(blocks: Iterable[SampleBlock]) -> dict[str, np.ndarray]:
    found = list(blocks)
    return {
        name: np.concatenate([getattr(b, name) for b in found])
        for name in ("t_ns", "ticks", "current_a", "voltage_v")
    }


class FrameDecoder:
    """The simplest wire there is: 16 bytes per sample. A tick that jumps is a gap."""

    def __init__(self) -> None:
        self._rest = b""
        self._next = 0
        self.findings = ()
        self.heard: dict[str, int] = {}

    def finish(self) -> list[Decoded]:
        """See `power.wire.decoder.Decoder`: nothing is."""
        return []

    def feed(self, data: bytes, arrival_ns: int) -> list[Decoded]:
        data = self._rest + data
        whole = len(data) // FRAME.itemsize * FRAME.itemsize
        self._rest = data[whole:]
        rows = np.frombuffer(data[:whole], FRAME)
        parts = np.split(rows, np.flatnonzero(np.diff(rows["tick"]) != 1) + 1) if len(rows) else []
        return [self._part(part) for part in parts]

    def _part(self, rows: np.ndarray) -> Decoded:
        first = int(rows["tick"][0])
        dropped, self._next = first - self._next, int(rows["tick"][-1]) + 1
        return Decoded(first, dropped, rows["tick"].copy(), rows["current_a"], rows["voltage_v"])


def frames(first_tick: int, current_a: Any, voltage_v: float = 4.0) -> bytes:
    rows = np.empty(len(current_a), FRAME)
    rows["tick"] = first_tick + np.arange(len(rows))
    rows["current_a"], rows["voltage_v"] = current_a, voltage_v
    return rows.tobytes()


class BytesMeter(StreamingMeter):
    """A meter whose bytes are known: portions to be read, in order; an exception among them is raised."""

    def __init__(self, portions: Iterable[bytes | BaseException], **info_values: Any) -> None:
        super().__init__(config(), info(**info_values), FrameDecoder())
        self._portions: Iterator[bytes | BaseException] = iter(portions)
        self.closed = False

    def begin_sampling(self) -> None:
        pass

    def end_sampling(self) -> None:
        pass

    def read_bytes(self) -> bytes:
        portion = next(self._portions, None)
        if isinstance(portion, BaseException):
            raise portion
        if portion is None:  # the recording is over: a real instrument would go on
            self.stop()
            return b""
        return portion

    def close(self) -> None:
        self.closed = True
