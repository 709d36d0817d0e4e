"""A meter that records in a thread of its own while something else happens, and is watched meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from joulefleet.errors import MeterSilent, UnsafeOutput
from power import MeterConfig, open_meter, record
from power.recording import FIRST_SAMPLE_S

if TYPE_CHECKING:
    from power import SampleBlock

OPENING_S = 135.0
"""Longest time that an instrument takes to open: a slow sketch may be listened to for 120 s."""

START_TIMEOUT_S = OPENING_S + FIRST_SAMPLE_S
"""Opening an instrument and its first sample; drivers and recorder give up by themselves before."""

LAG_S = 15.0
"""How far the samples of an instrument may lag behind before it is stopped all the same."""

END_S = 600.0
"""How long a recording may take to close: far longer than hashing a day of samples does."""

CEILING_S = 0.05
"""A current counts as too high when its mean over this long is: shorter peaks charge capacitors."""


class Metering:
    """Records a meter until stopped. Use as a context manager: inside, samples are coming in.

    Args:
        config: The instrument.
        folder: Where the recording goes.
        on_block: Sees every block of samples.
        on_failure: Told at once when the instrument fails, from the recording thread.
        current_max_a: Fails when the current is higher; None for no ceiling.

    Attributes:
        rate_hz: Samples per second of the instrument, once it is open.
    """

    def __init__(
        self,
        config: MeterConfig,
        folder: Path,
        *,
        on_block: Callable[[SampleBlock], None] = lambda _: None,
        on_failure: Callable[[BaseException], None] = lambda _: None,
        current_max_a: float | None = None,
    ) -> None:
        self._config = config
        self._folder = folder
        self._on_block = on_block
        self._on_failure = on_failure
        self._ceiling = None if current_max_a is None else _Ceiling(current_max_a)
        self.rate_hz = 0.0
        self._stop = threading.Event()
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._arrived = threading.Condition()
        self._last_ns = 0
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(START_TIMEOUT_S):
            self._stop.set()  # it ends by itself, whenever the instrument lets it
            raise MeterSilent(f"{self._config.kind}: no sample within {START_TIMEOUT_S:g} s")
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end()
        if kind is None and self._failure is not None:
            raise self._failure

    def wait_until(self, t_ns: int) -> None:
        """Until the samples have come as far as a moment: an instrument's link may lag behind."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._last_ns >= t_ns or self._failure is not None, LAG_S)

    def stop(self) -> None:
        """End the recording and have it whole on disk; raises what went wrong with it."""
        self._end()
        if self._failure is not None:
            raise self._failure

    def _end(self) -> None:
        """End the recording; an instrument that does not let it end has failed and is left behind."""
        self._stop.set()
        if self._failure is not None:  # it has ended, or was waited for before
            return
        self._thread.join(END_S)
        if self._thread.is_alive():
            self._failure = MeterSilent(
                f"{self._config.kind}: its recording did not end within {END_S:g} s",
                hint="unplug the instrument and plug it in again",
            )

    def _run(self) -> None:
        try:
            with open_meter(self._config) as meter:
                self.rate_hz = meter.info.rate_hz
                record(meter, self._folder, config=self._config, stop=self._stop, on_block=self._take)
        except BaseException as error:
            with self._arrived:
                self._failure = error
                self._arrived.notify_all()
            self._on_failure(error)
        finally:
            self._started.set()

    def _take(self, block: SampleBlock) -> None:
        self._started.set()
        with self._arrived:
            self._last_ns = int(block.t_ns[-1])
            self._arrived.notify_all()
        if self._ceiling is not None:
            self._ceiling.check(block)
        self._on_block(block)


class _Ceiling:
    """Mean current over `CEILING_S`, compared with the highest allowed."""

    def __init__(self, current_max_a: float) -> None:
        self._max_a = current_max_a
        self._sum_a = 0.0
        self._rows = 0
        self._since_ns: int | None = None

    def check(self, block: SampleBlock) -> None:
        """Raise if the current was too high for too long."""
        if self._since_ns is None:
            self._since_ns = int(block.t_ns[0])
        self._sum_a += float(block.current_a.sum(dtype=float))
        self._rows += len(block)
        if int(block.t_ns[-1]) - self._since_ns < CEILING_S * 1e9:
            return
        mean_a = self._sum_a / self._rows
        self._sum_a, self._rows, self._since_ns = 0.0, 0, int(block.t_ns[-1])
        if mean_a > self._max_a:
            raise UnsafeOutput(
                f"{mean_a:.3g} A, above the ceiling of {self._max_a:g} A",
                hint="check the wiring and the device before you raise abort.current_max_a",
            )
