"""What every importer gives, and how it becomes a recording."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from joulefleet.errors import DataQualityError
from power.model import Accuracy, FindingLog, InstrumentInfo, RangeAccuracy, SampleBlock, Severity
from power.recording.records import RecordingRecord
from power.recording.writer import RecordingWriter
from power.timebase import Timebase

MAX_BAD_ROWS = 10

MOST_A, MOST_V = 20.0, 20.0
"""A HVPM, the larger of the two instruments, gives up to 13.5 V and 6 A."""

Channel = Literal["main", "usb", "aux"]
Facts = dict[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What the user wants of a file.

    Attributes:
        channel: Which channel to take.
        accuracy: Of the instrument that made the file, if it is known.
        max_bad_rows: Rows that are no numbers are left out; with more of them, the import fails.
    """

    channel: Channel = "main"
    accuracy: Accuracy | None = None
    max_bad_rows: int = MAX_BAD_ROWS


@dataclass(frozen=True, slots=True)
class Source:
    """An opened file of a known format.

    Attributes:
        info: The instrument, as far as the file tells.
        blocks: Its samples, in bounded memory.
        finish: Called after the last block: adds to the findings and says what time the ticks are.
    """

    info: InstrumentInfo
    blocks: Iterator[SampleBlock]
    finish: Callable[[FindingLog], Timebase]


def write_source(source: Source, folder: Path, options: ImportOptions) -> RecordingRecord:
    """Store what a file holds as a recording."""
    writer = RecordingWriter(folder, source.info, None, started_ns=0)
    log = FindingLog()
    try:
        for block in source.blocks:
            if block.dropped_before:
                log.add(
                    "gap",
                    Severity.WARNING,
                    "samples are missing in the file",
                    index=block.first_index,
                    count=block.dropped_before,
                )
            _note_impossible(log, block)
            writer.append(block)
        if not writer.n_samples:
            name = source.info.facts["source_file"]
            raise DataQualityError(f"{name}: no sample that is not marked as missing", hint="record again")
    except BaseException:
        writer.abandon()
        raise
    timebase = source.finish(log)
    if options.accuracy is None:
        log.add("accuracy_unknown", Severity.WARNING, "the file does not say how accurate its instrument is")
    return writer.close(timebase, log.as_tuple())


def _note_impossible(log: FindingLog, block: SampleBlock) -> None:
    import numpy as np

    beyond = (np.abs(block.current_a) > MOST_A) | (np.abs(block.voltage_v) > MOST_V)
    log.add_each(
        "impossible_reading",
        Severity.ERROR,
        f"more than {MOST_A:g} A or {MOST_V:g} V, which no Monsoon reads: is a column in other units than "
        "its header says?",
        block.first_index + np.flatnonzero(beyond),
    )


@dataclass(frozen=True, slots=True)
class ReadingSteps:
    """Between neighbouring numbers of a file.

    Attributes:
        what: The kind of file.
        fine_a: Of current, up to ``fine_up_to_a``.
        volts: Of voltage.
        fine_up_to_a: Where the fine range ends; None if there is one range only.
        coarse_a: Of current above it.
    """

    what: str
    fine_a: float
    volts: float
    fine_up_to_a: float | None = None
    coarse_a: float = 0.0

    def accuracy(self, stated: Accuracy | None) -> Accuracy:
        """As stated, but never with finer steps than the file; if nothing is stated, no better than those."""
        if stated is None:
            return Accuracy(
                current=tuple(self._ranges()),
                voltage_gain_rel=0.0,
                voltage_offset_v=0.0,
                voltage_step_v=self.volts,
                source=f"resolution of {self.what}; the accuracy of the instrument is not known",
            )
        current = tuple(self._at_least(part) for part in stated.current)
        changes = {"current": current, "voltage_step_v": max(self.volts, stated.voltage_step_v or 0.0)}
        return stated.model_copy(update=changes)

    def _ranges(self) -> Iterator[RangeAccuracy]:
        if self.fine_up_to_a is None:
            yield RangeAccuracy(name="all", gain_rel=0.0, offset_a=0.0, step_a=self.fine_a)
            return
        fine = RangeAccuracy(name="fine", gain_rel=0.0, offset_a=0.0, step_a=self.fine_a)
        yield fine.model_copy(update={"up_to_a": self.fine_up_to_a})
        yield RangeAccuracy(name="coarse", gain_rel=0.0, offset_a=0.0, step_a=self.coarse_a)

    def _at_least(self, part: RangeAccuracy) -> RangeAccuracy:
        is_fine = self.fine_up_to_a is None or (part.up_to_a or math.inf) <= self.fine_up_to_a
        step_a = self.fine_a if is_fine else self.coarse_a
        return part.model_copy(update={"step_a": max(step_a, part.step_a or 0.0)})
