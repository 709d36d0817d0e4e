"""The capture pipeline that drivers share: one thread appends bytes, another decodes them in bulk."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Self

from joulefleet.errors import MeterError, MeterSilent
from power.meter import MeterConfig, RawSink
from power.model import Finding, FindingLog, InstrumentInfo, SampleBlock, SampleClock, Severity
from power.timebase import Timebase, TimebaseFitter, clock_tolerance_ppm
from power.wire.decoder import Decoder

DECODE_PERIOD_S = 0.05
"""How long bytes may wait to be decoded together; vectorised decoding wants large portions."""

STALL_S = 3.0
"""No byte for this long while sampling is an error, not a pause; see `StreamingMeter.stall_s`. After
twice as long an HVPM's count of lost samples may have wrapped (`power.wire.hvpm_continuity.A_FALL`)."""

PAUSE_S = 1.0
"""No byte for this long is worth a remark: instruments keep some milliseconds, and count what they lose
beyond that modulo some hundred samples."""

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
        self._pending: deque[tuple[int, bytes]] = deque()
        self._arrived = threading.Event()
        self._pauses_s: deque[float] = deque()
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
                if data:
                    if began and now_ns - last_ns > self._pause_s * 1e9:
                        self._pauses_s.append((now_ns - last_ns) * 1e-9)
                    began = True
                    self._pending.append((arrival_ns, data))
                    self._arrived.set()
                    last_ns = now_ns
        except BaseException as error:  # handed to the consumer, which raises it
            self._failure = error
        finally:
            self._arrived.set()

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

    def _take_portions(self) -> list[tuple[int, bytes]]:
        """What has arrived, in the portions in which it is kept and decoded.

        One portion is faster to decode; where the host's clock is the sample clock, each read stays
        on its own, because its arrival is its time.
        """
        reads = [self._pending.popleft() for _ in range(len(self._pending))]
        if not reads or self.info.timing is SampleClock.HOST:
            return reads
        return [(reads[-1][0], b"".join(data for _, data in reads))]

    def _decode_pending(self, raw: RawSink | None) -> Iterator[SampleBlock]:
        for arrival_ns, data in self._take_portions():
            if raw is not None:
                raw.write(data, arrival_ns)
            yield from self._decode(data, arrival_ns)

    def _decode(self, data: bytes, arrival_ns: int) -> Iterator[SampleBlock]:
        decoded = self._decoder.feed(data, arrival_ns)
        if not decoded:
            return
        while self._pauses_s:
            self._own_findings.add(
                "pause",
                Severity.WARNING,
                f"nothing arrived for {self._pauses_s.popleft():.1f} s: samples were lost, perhaps more than"
                " were counted, and sample times behind it may be off by as much",
                index=decoded[0].first_index,
                last_index=int(decoded[-1].ticks[-1]),
            )
        # What arrives now was complete by now, which says less about when it was measured.
        self._fitter.add(int(decoded[-1].ticks[-1]) + self.complete_after_ticks, arrival_ns)
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
