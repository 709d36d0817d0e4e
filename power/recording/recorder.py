"""Recording: a meter streamed to disk, checked on the way, finished whatever happens."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from joulefleet.errors import (
    DataQualityError,
    JoulefleetError,
    MeterDisconnected,
    MeterError,
    MeterSilent,
    StorageError,
)
from joulefleet.files import storage_error
from joulefleet.runstore.run import RunLock
from power.calibration import MeterCalibration
from power.correction import live_correction
from power.meter import MeterConfig, PowerMeter
from power.model import Finding, SampleBlock, Severity
from power.recording.checks import SampleChecks, finite_rows, merge_findings
from power.recording.records import OPENING_FILE, SALVAGE_HINT, RecordingRecord
from power.recording.writer import RecordingWriter, block_part

FIRST_SAMPLE_S = 30.0
"""Longest wait for the first sample: an HVPM calibrates for some 6 s before it delivers one. More for an
instrument so slow that this would be less than `power.model.SILENT_PERIODS`."""

_WATCH_PERIOD_S = 0.1


def record(
    meter: PowerMeter,
    folder: Path | str,
    *,
    config: MeterConfig | None = None,
    seconds: float | None = None,
    stop: threading.Event | None = None,
    on_block: Callable[[SampleBlock], None] | None = None,
) -> RecordingRecord:
    """Record a meter into a new folder until time is up, ``stop`` is set, or its stream ends.

    Whatever ends it, every sample that had been decoded is on disk. After a failure the recording is
    finished with an error finding, and the error is raised again with the place of the data; Ctrl-C
    finishes it too.

    Examples:
        >>> with open_meter(config) as meter:
        ...     record(meter, "first", config=config, seconds=10)

    Args:
        meter: An open meter that has not streamed yet.
        folder: Where the recording goes; made if missing, refused if it holds one already.
        config: The limits of the connected device: kept with the data and checked. Its calibration is kept
            with the data too; what is stored is what the instrument said.
        seconds: How long to record from the first sample on, in host time.
        stop: Ends the recording when set, from any thread.
        on_block: Called with every block, corrected, after it was taken over.

    Raises:
        ConfigError: The calibration belongs to another unit, scaling, channel or range; nothing was recorded.
        MeterError: The instrument failed, was unplugged, or sent no sample.
        DataQualityError: A sample was not a finite number.
        StorageError: The folder is taken, or the disk refused.
    """
    folder = Path(folder)
    calibration = _calibration(meter, config)
    correct = live_correction(meter.info, calibration)
    with _hold(folder):
        writer = RecordingWriter(
            folder, meter.info, config, started_ns=time.monotonic_ns(), calibration=calibration
        )
        intake = _Intake(writer, SampleChecks(meter.info, config), on_block, correct)
        limit = _TimeLimit(seconds, stop, first_sample_s=meter.info.timeout_s(FIRST_SAMPLE_S))
        failure: BaseException | None = None
        try:
            _stream(meter, intake, limit)
        except BaseException as error:
            failure = error
        return _finish(meter, intake, failure)


def _calibration(meter: PowerMeter, config: MeterConfig | None) -> MeterCalibration | None:
    """The one configured, or else the one that the meter brings: a replay that of its recording."""
    stated = None if config is None else config.calibration
    found = stated or getattr(meter, "calibration", None)
    return found if isinstance(found, MeterCalibration) else None


def put_earlier_aside(folder: Path) -> None:
    """Make room for a recording: one of a try that came to no result goes to ``failed`` beside it.

    Raises:
        StorageError: A living process is writing it, or the disk refuses.
    """
    if not (folder / OPENING_FILE).exists():
        return
    failed = folder.parent / "failed"
    number = len(list(failed.glob(f"{folder.name}-attempt*"))) + 1
    with contextlib.closing(RunLock(folder)):
        try:
            failed.mkdir(exist_ok=True)
            folder.rename(failed / f"{folder.name}-attempt{number}")
        except OSError as error:
            raise storage_error(folder, error) from error


@contextlib.contextmanager
def _hold(folder: Path) -> Iterator[None]:
    """Lock the folder, so that nobody salvages a recording that is still being written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(folder, error) from error
    with contextlib.closing(RunLock(folder)):
        if (folder / OPENING_FILE).exists():
            raise StorageError(f"{folder}: holds a recording already", hint="choose another folder")
        yield


class _Intake:
    """Takes blocks over: refuses what is no number, checks, stores, shows."""

    def __init__(
        self,
        writer: RecordingWriter,
        checks: SampleChecks,
        on_block: Callable[[SampleBlock], None] | None,
        correct: Callable[[SampleBlock], SampleBlock],
    ) -> None:
        self.writer = writer
        self._correct = correct
        self.checks = checks
        self._on_block = on_block
        self.last_index: int | None = None

    def take(self, block: SampleBlock) -> None:
        good = finite_rows(block)
        whole = good == len(block)
        if not whole:
            block = block_part(block, 0, good)
        if good:
            self.checks.add(block)
            self.writer.append(block)
            self.last_index = block.first_index + good - 1
        if not whole:
            raise DataQualityError(
                f"{self.writer.info.kind}: sample {block.first_index + good} is not a finite number",
                hint="the instrument's bytes are kept: report this as a bug of its decoder",
            )
        if self._on_block is not None:
            self._on_block(self._correct(block))


class _TimeLimit:
    """When to stop: by the samples' own time (a replay may outrun the clock) and by the host's clock."""

    def __init__(self, seconds: float | None, stop: threading.Event | None, *, first_sample_s: float) -> None:
        self._first_sample_ns = round(first_sample_s * 1e9)
        self._limit_ns = None if seconds is None else round(seconds * 1e9)
        self._stop = stop
        self._began_ns = time.monotonic_ns()
        self._first_ns: int | None = None
        self._first_arrival_ns: int | None = None

    def reached_by(self, block: SampleBlock) -> bool:
        """Whether the samples up to this one are enough."""
        if self._first_ns is None:
            self._first_ns = int(block.t_ns[0])
            self._first_arrival_ns = time.monotonic_ns()
        return self._limit_ns is not None and int(block.t_ns[-1]) - self._first_ns >= self._limit_ns

    def is_over(self) -> bool:
        """Whether to stop although no block says so; asked by another thread."""
        if self._stop is not None and self._stop.is_set():
            return True
        now_ns = time.monotonic_ns()
        if self._first_arrival_ns is None:
            return now_ns - self._began_ns > self._first_sample_ns
        return self._limit_ns is not None and now_ns - self._first_arrival_ns >= self._limit_ns


def _stream(meter: PowerMeter, intake: _Intake, limit: _TimeLimit) -> None:
    """Stream to the end; after a stop the samples already on their way are still taken."""
    stream = meter.stream(intake.writer)
    try:
        with _watch(meter, limit):
            for block in stream:
                if len(block):
                    intake.take(block)
                    if limit.reached_by(block):
                        meter.stop()
    finally:
        meter.stop()
        if isinstance(stream, Generator):
            stream.close()


@contextlib.contextmanager
def _watch(meter: PowerMeter, limit: _TimeLimit) -> Iterator[None]:
    """Stop the meter when time is up, even if it sends nothing."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_WATCH_PERIOD_S):
            if limit.is_over():
                meter.stop()
                return

    thread = threading.Thread(target=watch, name="recording-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _without_samples(
    meter: PowerMeter, writer: RecordingWriter, failure: BaseException | None
) -> BaseException:
    """Why there is nothing to keep. If no byte came, the folder is free for another try."""
    if not writer.raw_bytes and (failure is None or isinstance(failure, MeterError)):
        writer.discard()
        return failure or MeterSilent(
            f"{writer.info.kind}: not a single byte arrived", hint="is it switched on, and is this its port?"
        )
    writer.abandon()
    heard: dict[str, int] = getattr(meter, "heard", {})  # of drivers that decode bytes
    came = [f"{count} {kind}" for kind, count in heard.items()]
    most = max(meter.findings, key=lambda finding: finding.count, default=None)
    came += [] if most is None else [f"{most.message}, {most.count} times"]
    said = f"{writer.raw_bytes} bytes arrived, but not a single sample ({', '.join(came) or 'nothing known'})"
    if isinstance(failure, MeterError):
        return type(failure)(f"{failure.message}; {said}", hint=f"{failure.hint}; see {writer.folder}")
    return failure or MeterSilent(f"{writer.info.kind}: {said}", hint=f"what it sent is in {writer.folder}")


def _finish(meter: PowerMeter, intake: _Intake, failure: BaseException | None) -> RecordingRecord:
    """Put everything on disk, then raise what had gone wrong."""
    writer = intake.writer
    if not writer.n_samples:
        raise _without_samples(meter, writer, failure)
    try:
        timebase = meter.timebase
        findings = merge_findings(meter.findings, intake.checks.finish(timebase))
        if failure is not None:
            findings = (*findings, _finding_of(failure, intake.last_index))
        record = writer.close(timebase, findings)
    except BaseException as error:
        writer.abandon()
        if isinstance(failure, StorageError):
            raise type(failure)(failure.message, hint=f"free some space; then {SALVAGE_HINT}") from failure
        if isinstance(error, DataQualityError):  # no timebase for all of it; salvage takes what had one
            raise DataQualityError(error.message, hint=f"{error.hint}; {SALVAGE_HINT}") from (
                failure or error
            )
        raise
    if failure is None:
        return record
    place = f"the {record.n_samples} samples before it are in {writer.folder}"
    if isinstance(failure, JoulefleetError):
        raise type(failure)(f"{failure.message}; {place}", hint=failure.hint) from failure
    failure.add_note(place)
    raise failure


def _finding_of(failure: BaseException, index: int | None) -> Finding:
    severity = Severity.ERROR
    if isinstance(failure, KeyboardInterrupt):
        code, message, severity = "interrupted", "the recording was interrupted", Severity.INFO
    elif isinstance(failure, JoulefleetError):
        code, message = _CODES.get(type(failure), "capture_failed"), failure.message
    else:
        code, message = "capture_failed", f"{type(failure).__name__}: {failure}"
    return Finding(code=code, severity=severity, message=message, first_index=index, last_index=index)


_CODES: dict[type[BaseException], str] = {MeterDisconnected: "disconnected", DataQualityError: "not_finite"}
