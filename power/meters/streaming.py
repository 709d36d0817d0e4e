"""The capture pipeline that drivers share: one thread appends bytes, another decodes them in bulk."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Self

from joulefleet.errors import MeterError, MeterSilent
from power.meter import MeterConfig, RawSink
from power.model import Finding, FindingLog, InstrumentInfo, SampleBlock, SampleClock, Severity
from power.timebase import Timebase, TimebaseFitter, clock_tolerance_ppm
from power.wire.decoder import Decoded, Decoder

DECODE_PERIOD_S = 0.05
"""How long bytes may wait to be decoded together; vectorised decoding wants large portions."""

STALL_S = 3.0
"""No byte for this long while sampling is an error, not a pause; see `StreamingMeter.stall_s`. After
twice as long an HVPM's count of lost samples may have wrapped (`power.wire.hvpm_continuity.A_FALL`)."""

PAUSE_S = 0.25
"""No byte for this long is worth a remark. A Monsoon keeps 3 ms (HVPM) or 16 ms (LVPM) of samples, the kernel
4 KB of a serial port, which is 0.1 s of an LVPM."""

BREAK_S = 0.04
"""A silence of this length is kept with the bytes, so that decoders know where nothing came. An LVPM must be
left alone for 67 ms to lose as many samples as its counter can count."""

NOTHING_LOST = "but no sample was lost"

TAKEN_WITHIN_S = 60.0
"""How long bytes may wait for whoever takes the samples; memory is bounded by this."""

log = logging.getLogger(__name__)


def _sleepless_ns() -> int:
    """A clock that goes on while the machine sleeps; macOS calls it monotonic."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class StreamingMeter(ABC):
    """Base of the drivers: they say how to start, read, stop and decode; this class does the rest."""

    def __init__(self, config: MeterConfig, info: InstrumentInfo, decoder: Decoder) -> None:
        self.config = config
        self._info = info
        self._decoder = decoder
        self._fitter = TimebaseFitter(info.tick_hz, tolerance_ppm=clock_tolerance_ppm(info))
        self._own_findings = FindingLog()
        self._stop = threading.Event()
        self._pending: deque[_Read] = deque()
        self._arrived = threading.Event()
        self._paused_s = 0.0  # before what is decoded next
        self._silent_s = 0.0  # at the end
        self._last_index: int | None = None
        self._pause_s = info.timeout_s(PAUSE_S)
        self._failure: BaseException | None = None
        self._streamed = False

    @property
    def info(self) -> InstrumentInfo:
        """Facts about the instrument."""
        return self._info

    @property
    def timebase(self) -> Timebase:
        """The mapping from ticks to host time fitted so far."""
        return self._fitter.fit()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What driver and decoder noticed so far."""
        return (*self._own_findings.as_tuple(), *self._decoder.findings)

    @property
    def heard(self) -> dict[str, int]:
        """What came that is no sample, and how often."""
        return self._decoder.heard

    @property
    def stall_s(self) -> float:
        """The longest silence that is a pause; a sketch may print a reading every few seconds only."""
        return self.info.timeout_s(STALL_S)

    @property
    def complete_after_ticks(self) -> int:
        """Ticks from the time of a sample until the instrument has it, such as half of an average."""
        return 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        self.close()

    def stop(self) -> None:
        """Ask the stream to end."""
        self._stop.set()
        self._arrived.set()

    def stream(self, raw: RawSink | None = None) -> Iterator[SampleBlock]:
        """Sample until stopped. See `power.meter.PowerMeter.stream`."""
        if self._streamed:
            raise MeterError(f"{self.info.kind}: a meter streams once", hint="open it again")
        self._streamed = True
        self.begin_sampling()
        reader = threading.Thread(target=self._read_loop, name="meter-reader", daemon=True)
        reader.start()
        try:
            while reader.is_alive() or self._pending:
                self._arrived.wait(DECODE_PERIOD_S)
                if not self._stop.is_set():
                    time.sleep(DECODE_PERIOD_S)
                self._arrived.clear()
                yield from self._decode_pending(raw)
                if self._stop.is_set():
                    reader.join()
        finally:
            self._stop.set()
            reader.join()
            # The stream's own outcome matters more than a stop command lost on a dead link.
            with contextlib.suppress(MeterError, OSError):
                self.end_sampling()
        yield from self._decode_pending(raw)
        yield from self._blocks(self._decoder.finish())
        if self._silent_s > self._pause_s and self._last_index is not None:
            self._note_pause(self._silent_s, "at the end", self._last_index, self._last_index)
        if self._failure is not None:
            raise self._failure

    def _read_loop(self) -> None:
        """Only append: anything slower here, such as a disk, would lose bytes in the instrument."""
        last_ns, stall_ns = _sleepless_ns(), self.stall_s * 1e9
        began = False
        try:
            while not self._stop.is_set():
                data = self.read_bytes()
                arrival_ns, now_ns = time.monotonic_ns(), _sleepless_ns()
                if now_ns - last_ns > stall_ns:
                    raise self._stalled((now_ns - last_ns) * 1e-9, bool(data))
                self._silent_s = (now_ns - last_ns) * 1e-9
                if data:
                    self._pending.append(_Read(arrival_ns, data, self._silent_s if began else 0.0))
                    self._arrived.set()
                    self._require_taken(arrival_ns)
                    began, last_ns = True, now_ns
        except BaseException as error:  # handed to the consumer, which raises it
            self._failure = error
        finally:
            self._arrived.set()

    def _require_taken(self, now_ns: int) -> None:
        """End the stream when nobody takes its samples; what has arrived is still delivered."""
        with contextlib.suppress(IndexError):  # they have been taken just now
            if now_ns - self._pending[0][0] > TAKEN_WITHIN_S * 1e9:
                raise MeterError(
                    f"{self.info.kind}: nobody has taken its samples for {TAKEN_WITHIN_S:g} s",
                    hint="the program that records is stuck: is the disk full, or slow?",
                )

    def _stalled(self, seconds: float, goes_on: bool) -> MeterSilent:
        """Why the stream ends: the instrument is silent, or this program did not read it in time.

        What follows a pause cannot be placed in time: the instruments' counters of what was lost wrap after
        seconds, and the host's clock stands still while the machine sleeps.
        """
        if goes_on:
            return MeterSilent(
                f"{self.info.kind}: was not read for {seconds:.1f} s while sampling",
                hint="record again; the program (Ctrl-Z) and the machine must not be suspended meanwhile",
            )
        return MeterSilent(
            f"{self.info.kind}: no data for {self.stall_s:g} s while sampling",
            hint="check the cable, then power-cycle the instrument",
        )

    def _take_portions(self) -> Iterator[_Read]:
        """What has arrived, in the portions in which it is kept and decoded.

        One portion is faster to decode; where the host's clock is the sample clock, each read stays
        on its own, because its arrival is its time. A silence is a portion without bytes.
        """
        joined: list[_Read] = []
        for _ in range(len(self._pending)):
            read = self._pending.popleft()
            silent = read.silent_s > BREAK_S
            if joined and (silent or self.info.timing is SampleClock.HOST):
                yield _join(joined)
                joined = []
            if silent:
                yield _Read(read.arrival_ns, b"", read.silent_s)
            joined.append(read)
        if joined:
            yield _join(joined)

    def _decode_pending(self, raw: RawSink | None) -> Iterator[SampleBlock]:
        for read in self._take_portions():
            if raw is not None:
                raw.write(read.data, read.arrival_ns)
            self._paused_s = max(self._paused_s, read.silent_s)
            yield from self._decode(read.data, read.arrival_ns)

    def _decode(self, data: bytes, arrival_ns: int) -> Iterator[SampleBlock]:
        decoded = self._decoder.feed(data, arrival_ns)
        if decoded:
            # What arrives now was complete by now, which says less about when it was measured.
            self._fitter.add(int(decoded[-1].ticks[-1]) + self.complete_after_ticks, arrival_ns)
            yield from self._blocks(decoded)

    def _blocks(self, decoded: list[Decoded]) -> Iterator[SampleBlock]:
        if not decoded:
            return
        self._last_index = int(decoded[-1].first_index) + len(decoded[-1].ticks) - 1
        if self._paused_s > self._pause_s:
            self._note_pause(self._paused_s, _losses(decoded), decoded[0].first_index, self._last_index)
        self._paused_s = 0.0
        timebase = self.timebase
        for part in decoded:
            if part.dropped_before:
                self._own_findings.add(
                    "gap",
                    Severity.WARNING,
                    "samples were lost",
                    index=part.first_index,
                    count=part.dropped_before,
                )
            yield SampleBlock(
                t_ns=timebase.to_host_ns(part.ticks),
                ticks=part.ticks,
                current_a=part.current_a,
                voltage_v=part.voltage_v,
                first_index=part.first_index,
                dropped_before=part.dropped_before,
            )

    def _note_pause(self, seconds: float, what: str, first_index: int, last_index: int) -> None:
        code, severity = ("late_data", Severity.INFO) if what == NOTHING_LOST else ("pause", Severity.WARNING)
        message = f"nothing arrived for {seconds:.1f} s, {what}"
        self._own_findings.add(code, severity, message, index=first_index, last_index=last_index)

    @abstractmethod
    def begin_sampling(self) -> None:
        """Tell the instrument to start."""

    @abstractmethod
    def end_sampling(self) -> None:
        """Tell the instrument to stop."""

    @abstractmethod
    def read_bytes(self) -> bytes:
        """Whatever has arrived; waits at most 0.2 s, then returns ``b""``.

        Raises:
            MeterDisconnected: The instrument is gone.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the port; leaves the instrument's output as it is. May be called twice."""


class _Read(NamedTuple):
    """Bytes, when the last of them had arrived, and how long nothing came before them."""

    arrival_ns: int
    data: bytes
    silent_s: float


def _join(reads: list[_Read]) -> _Read:
    return _Read(reads[-1].arrival_ns, b"".join(read.data for read in reads), reads[0].silent_s)


def _losses(decoded: list[Decoded]) -> str:
    """What is known to be lost in what came behind a pause."""
    counts = [part.dropped_before for part in decoded]
    if None in counts:
        return "and what was lost is not known"
    lost = sum(filter(None, counts))
    return f"and {lost} samples were lost" if lost else NOTHING_LOST
