"""What every importer gives, and how it becomes a recording."""

from __future__ import annotations

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
            writer.append(block)
        if not writer.n_samples:
            raise DataQualityError("the file marks every sample as missing: no sample is left")
    except BaseException:
        writer.abandon()
        raise
    timebase = source.finish(log)
    if options.accuracy is None:
        log.add("accuracy_unknown", Severity.WARNING, "the file does not say how accurate its instrument is")
    return writer.close(timebase, log.as_tuple())


def resolution_only(what: str, current: tuple[RangeAccuracy, ...], half_step_v: float) -> Accuracy:
    """The accuracy of an unknown instrument: no better than the resolution of the file."""
    return Accuracy(
        current=current,
        voltage_gain_rel=0.0,
        voltage_offset_v=half_step_v,
        source=f"resolution of {what}; the accuracy of the instrument is not known",
    )
