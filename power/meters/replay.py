"""Replay: a stored recording as a meter, in real time or as fast as the reader wants it.

Sample times move to the present by one constant and are never stretched, so energy stays what it was;
``speed`` only decides when a sample is handed out. Its kind says ``replay:``, which makes
whatever is computed from it `imported` at most, and what an emulated instrument had recorded stays emulated.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

from pydantic import Field

from joulefleet.config import ClosedModel, validate
from joulefleet.errors import ConfigError, MeterError
from power.calibration import MeterCalibration
from power.meter import MeterConfig, RawSink
from power.model import Finding, InstrumentInfo, SampleBlock
from power.recording.reader import Recording, open_recording
from power.recording.records import SECOND_HAND
from power.recording.writer import block_part
from power.timebase import Timebase

PORTION_S = 0.1
"""How much is handed out at once in real time, about as much as a live meter does."""


class ReplayOptions(ClosedModel):
    """``options`` of a meter of this kind.

    Attributes:
        speed: Seconds of the recording per second; 0 for as fast as possible.
    """

    speed: float = Field(default=1.0, strict=True, ge=0)


def open_meter(config: MeterConfig) -> ReplayMeter:
    """Open the recording in the folder ``config.port``."""
    options = validate(config.options, ReplayOptions, name="replay options")
    if not config.port:
        raise ConfigError("replay: no recording given", hint="set port to the folder of a recording")
    recording = open_recording(Path(config.port))
    if config.serial and config.serial != recording.record.info.serial:
        raise ConfigError(
            f"replay: {config.port} is of serial {recording.record.info.serial!r}, not {config.serial!r}"
        )
    return ReplayMeter(recording, speed=options.speed)


class ReplayMeter:
    """A recording that plays itself; see `power.meter.PowerMeter`.

    Args:
        recording: What to play.
        speed: Seconds of the recording per second; 0 for as fast as possible.
    """

    def __init__(self, recording: Recording, *, speed: float = 1.0) -> None:
        self._recording = recording
        self._speed = speed
        self._info = replayed_info(recording)
        self._timebase = recording.record.timebase
        self._stop = threading.Event()
        self._streamed = False

    @property
    def info(self) -> InstrumentInfo:
        """The instrument that recorded it, marked as replayed."""
        return self._info

    @property
    def calibration(self) -> MeterCalibration | None:
        """That of the recording: what is played is what the instrument said, and needs it as well."""
        return self._recording.calibration

    @property
    def timebase(self) -> Timebase:
        """The recorded timebase, moved to the present once the stream has begun."""
        return self._timebase

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found when it was recorded."""
        return self._recording.record.findings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask the stream to end."""
        self._stop.set()

    def stream(self, raw: RawSink | None = None) -> Iterator[SampleBlock]:
        """Play once. There are no bytes to keep: ``raw`` gets none."""
        if self._streamed:
            raise MeterError(f"{self.info.kind}: a meter streams once", hint="open it again")
        self._streamed = True
        began_ns = time.monotonic_ns()
        first_ns: int | None = None
        for block in self._portions():
            if first_ns is None:
                first_ns = int(block.t_ns[0])
                self._timebase = _moved(self._timebase, began_ns - first_ns)
            self._wait(began_ns, int(block.t_ns[-1]) - first_ns)
            if self._stop.is_set():
                return
            yield replace(block, t_ns=block.t_ns + (began_ns - first_ns))

    def _portions(self) -> Iterator[SampleBlock]:
        rows = max(1, round(PORTION_S * self._speed * self._info.rate_hz)) if self._speed else None
        for block in self._recording.as_stored().blocks():
            step = rows or len(block)
            for start in range(0, len(block), step):
                yield block_part(block, start, start + step)

    def _wait(self, began_ns: int, played_ns: int) -> None:
        """Until the last sample of a portion is due."""
        if self._speed:
            due_ns = began_ns + played_ns / self._speed
            self._stop.wait(max(0.0, (due_ns - time.monotonic_ns()) * 1e-9))


def replayed_info(recording: Recording) -> InstrumentInfo:
    """The instrument of a recording as a replay may show it: never more than imported."""
    info = recording.record.info
    kind = info.kind if info.kind.startswith(SECOND_HAND) else f"replay:{info.kind}"
    facts = {**info.facts, "replay_of_sha256": recording.record.sha256()}
    return info.model_copy(update={"kind": kind, "port": str(recording.folder), "facts": facts})


def _moved(timebase: Timebase, by_ns: int) -> Timebase:
    return timebase.model_copy(update={"host_ns": tuple(t + by_ns for t in timebase.host_ns)})
