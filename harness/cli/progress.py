"""What a person sees and can do during long work: progress and watts on standard error, and a clean stop."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Self

from harness.cli.terminal import console, echo
from joulefleet.printable import printable

if TYPE_CHECKING:
    from harness.demo.run import Advance
    from power import SampleBlock


PLAIN_PERIOD_S = 5.0


@contextlib.contextmanager
def progress(what: str, total: float | None) -> Iterator[Advance]:
    """Show progress of ``what`` up to ``total``; None for work without a known end."""
    if not sys.stderr.isatty():
        yield _PlainLines(what, total)
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=console()) as bar:
        task = bar.add_task(printable(what), total=total, note="")

        def advance(done: float, note: str = "") -> None:
            bar.update(task, completed=done, note=printable(note))

        yield advance


class _PlainLines:
    """One line every few seconds and one at the end."""

    def __init__(self, what: str, total: float | None) -> None:
        self._what = what
        self._total = total
        self._last_s = time.monotonic()

    def __call__(self, done: float, note: str = "") -> None:
        now_s = time.monotonic()
        finished = self._total is not None and done >= self._total
        if not finished and now_s - self._last_s < PLAIN_PERIOD_S:
            return
        self._last_s = now_s
        share = "" if self._total is None else f"{done / self._total if self._total else 1.0:.0%} "
        echo(f"{self._what}: {share}{note}".rstrip(), err=True)


SHOWN_S = 0.5
"""The watts shown are a mean over this long: a number that changes faster cannot be read."""


class LivePower:
    """Shows power while samples come in; pass it as ``on_block``."""

    def __init__(self, what: str, seconds: float | None) -> None:
        self._seconds = seconds
        self._progress = progress(what, seconds)
        self._first_ns: int | None = None
        self._shown_ns = 0
        self._recent = (0.0, 0)  # sum of watts and number of samples since something was shown
        self._total = (0.0, 0)

    def __enter__(self) -> Self:
        self._advance = self._progress.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._seconds is not None and self.mean_power_w is not None:
            self._advance(self._seconds, f"{self.mean_power_w:.4f} W on average")
        self._progress.__exit__(None, None, None)

    @property
    def mean_power_w(self) -> float | None:
        """Mean of all samples so far."""
        sum_w, rows = self._total
        return sum_w / rows if rows else None

    def __call__(self, block: SampleBlock) -> None:
        """Take a block into account."""
        last_ns = int(block.t_ns[-1])
        if self._first_ns is None:
            self._first_ns = self._shown_ns = int(block.t_ns[0])
        sum_w = float(block.power_w.sum(dtype=float))
        self._total = (self._total[0] + sum_w, self._total[1] + len(block))
        self._recent = (self._recent[0] + sum_w, self._recent[1] + len(block))
        if last_ns - self._shown_ns >= SHOWN_S * 1e9:
            self._advance((last_ns - self._first_ns) * 1e-9, f"{self._recent[0] / self._recent[1]:.4f} W")
            self._shown_ns, self._recent = last_ns, (0.0, 0)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; a second one of them acts as usual."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, _: FrameType | None) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
