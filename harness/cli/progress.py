"""Progress of long work: a bar on a terminal, plain lines elsewhere; always on standard error."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.demo.run import Advance

PLAIN_PERIOD_S = 5.0


@contextlib.contextmanager
def progress(what: str, total: float | None) -> Iterator[Advance]:
    """Show progress of ``what`` up to ``total``; None for work without a known end."""
    if sys.stderr.isatty():
        with _bar(what, total) as advance:
            yield advance
    else:
        yield _PlainLines(what, total)


@contextlib.contextmanager
def _bar(what: str, total: float | None) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total, note="")

        def advance(done: float, note: str = "") -> None:
            bar.update(task, completed=done, note=note)

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
        with contextlib.suppress(OSError):  # whoever read it may have gone; the work goes on
            print(f"{self._what}: {share}{note}".rstrip(), file=sys.stderr, flush=True)
