"""``joulefleet meter watch``: what a meter reads right now, and nothing on disk."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from harness.cli.frame import Command, Output
from harness.cli.meter.options import with_meter
from harness.cli.progress import stop_on_signals
from harness.cli.terminal import console, echo
from joulefleet.errors import DataQualityError, MeterSilent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from power import MeterConfig, PowerMeter, SampleBlock

SHOWN_S = 0.5
"""The watts shown are a mean over this long: a number that changes faster cannot be read."""

SILENT_S = 1.0
"""Without a sample for this long, the last watts are no longer those of now."""

LINE_S = 1.0
REFRESH_S = 0.25


class Watched:
    """What the samples so far say. One thread adds, any thread reads.

    Attributes:
        now_w: Mean over the last half second.
        energy_j: Of the time between samples that follow each other; gaps are not filled.
        seconds: From the first sample to the last.
        unseen_s: Of them, in gaps.
        lost: Samples known to be lost; None where the instrument cannot tell.
    """

    def __init__(self) -> None:
        self.n_samples = 0
        self.now_w = float("nan")
        self.energy_j = self.seconds = self.unseen_s = 0.0
        self.lowest_w, self.highest_w = float("inf"), float("-inf")
        self.lost: int | None = 0
        self._first_ns: int | None = None
        self._last: tuple[int, float, int] | None = None
        self._recent = (0.0, 0, 0)
        self._came_s = 0.0

    def add(self, block: SampleBlock) -> None:
        """Take a block into account."""
        t_ns, power_w = block.t_ns, block.power_w.astype(np.float64)
        if not np.isfinite(power_w).all():
            raise DataQualityError(f"a sample near number {block.first_index} is not a finite number")
        self._join(block, power_w)
        self.energy_j += float(np.sum(np.diff(t_ns) * (power_w[1:] + power_w[:-1]) * 0.5e-9))
        if self._first_ns is None:
            self._first_ns = int(t_ns[0])
        self.seconds = (int(t_ns[-1]) - self._first_ns) * 1e-9
        self.n_samples += len(block)
        self.lowest_w = min(self.lowest_w, float(power_w.min()))
        self.highest_w = max(self.highest_w, float(power_w.max()))
        self._show(t_ns, power_w)
        self._came_s = time.monotonic()
        self._last = (int(t_ns[-1]), float(power_w[-1]), block.first_index + len(block))

    def _join(self, block: SampleBlock, power_w: NDArray[np.float64]) -> None:
        """What lies between the last block and this one."""
        dropped = block.dropped_before
        if dropped is None or self.lost is None:
            self.lost = None
        else:
            self.lost += dropped
        if self._last is None:
            return
        last_ns, last_w, next_index = self._last
        between_s = (int(block.t_ns[0]) - last_ns) * 1e-9
        # As `power.energy` has it: an LVPM skips numbers where it reads its calibration, and loses nothing.
        if dropped == 0 or (dropped is None and block.first_index == next_index):  # then `lost` says so
            self.energy_j += between_s * (last_w + float(power_w[0])) / 2
        else:
            self.unseen_s += between_s

    def _show(self, t_ns: NDArray[np.int64], power_w: NDArray[np.float64]) -> None:
        sum_w, rows, since_ns = self._recent
        sum_w, rows, since_ns = sum_w + float(power_w.sum()), rows + len(power_w), since_ns or int(t_ns[0])
        if self.now_w != self.now_w or int(t_ns[-1]) - since_ns >= SHOWN_S * 1e9:
            self.now_w, sum_w, rows, since_ns = sum_w / rows, 0.0, 0, int(t_ns[-1])
        self._recent = (sum_w, rows, since_ns)

    @property
    def seen_s(self) -> float:
        """Without gaps."""
        return self.seconds - self.unseen_s

    def data(self) -> dict[str, Any]:
        """For ``--json``; unknown is null."""
        some = self.n_samples > 0
        return {
            "seconds": self.seconds,
            "n_samples": self.n_samples,
            "lost": self.lost,
            "unseen_s": self.unseen_s,
            "energy_j": self.energy_j if some else None,
            "energy_is_lower_bound": self.unseen_s > 0,
            "mean_power_w": self.energy_j / self.seen_s if self.seen_s > 0 else None,
            "lowest_w": self.lowest_w if some else None,
            "highest_w": self.highest_w if some else None,
        }

    def cells(self) -> dict[str, str]:
        """What people see, by name."""
        if not self.n_samples:
            return {"power": "waiting for the first sample"}
        bound = ">= " if self.unseen_s > 0 else ""
        silent_s = time.monotonic() - self._came_s
        return {
            "power": f"no sample for {silent_s:.0f} s" if silent_s > SILENT_S else f"{self.now_w:.4f} W",
            "so far": f"{bound}{self.energy_j:.4g} J in {self.seconds:.1f} s",
            "lowest": f"{self.lowest_w:.4f} W",
            "highest": f"{self.highest_w:.4f} W",
            "lost": "unknown" if self.lost is None else f"{self.lost:,} samples",
        }


@click.command("watch", cls=Command)
@with_meter
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="How long; else until Ctrl-C.")
def watch(config: MeterConfig, seconds: float | None) -> Output:
    """Show power, joules so far, lowest, highest and losses as they come; nothing is recorded.

    Its numbers have no interval: `joulefleet meter record` and `meter show` give one.
    """
    from power import open_meter
    from power.calibrate import live_correction

    seen = Watched()
    with open_meter(config) as meter, stop_on_signals() as stop, _shown(seen):
        correct = live_correction(meter.info, config.calibration)
        with _stopped_by(stop, meter, meter.info.timeout_s(FIRST_SAMPLE_S), seen):
            for block in meter.stream():
                if len(block):
                    seen.add(correct(block))
                    if seconds is not None and seen.seconds >= seconds:
                        meter.stop()
        kind, emulated = meter.info.kind, meter.info.emulated
    if not seen.n_samples and not stop.is_set():
        raise MeterSilent(f"{kind}: no sample came", hint="is it switched on, and is its output on?")
    data = {"kind": kind, "emulated": emulated, **seen.data()}
    return Output(data, _lines(data, seen))


FIRST_SAMPLE_S = 30.0
"""As for a recording: an HVPM calibrates for some 6 s before its first sample."""


@contextlib.contextmanager
def _stopped_by(stop: threading.Event, meter: PowerMeter, patience_s: float, seen: Watched) -> Iterator[None]:
    """End the stream when a signal comes, also while nothing arrives, and when nothing ever does."""
    over, began_s = threading.Event(), time.monotonic()

    def look() -> None:
        while not over.wait(0.1):
            silent = not seen.n_samples and time.monotonic() - began_s > patience_s
            if stop.is_set() or silent:
                meter.stop()
                return

    thread = threading.Thread(target=look, name="watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def _shown(seen: Watched) -> Iterator[None]:
    """A table on a terminal, a line every second elsewhere."""
    over = threading.Event()
    terminal = sys.stderr.isatty()
    with _table(seen) if terminal else contextlib.nullcontext(lambda: _line(seen)) as show:
        thread = threading.Thread(
            target=_every, args=(REFRESH_S if terminal else LINE_S, show, over), daemon=True
        )
        thread.start()
        try:
            yield
        except BaseException:  # the table goes away, and what was seen with it
            if terminal and seen.n_samples:
                _line(seen)
            raise
        finally:
            over.set()
            thread.join()


def _every(period_s: float, show: Callable[[], None], over: threading.Event) -> None:
    while not over.wait(period_s):
        show()


def _line(seen: Watched) -> None:
    echo(", ".join(f"{name} {value}" for name, value in seen.cells().items()), err=True)


@contextlib.contextmanager
def _table(seen: Watched) -> Iterator[Callable[[], None]]:
    from rich.live import Live
    from rich.table import Table

    with Live(console=console(), auto_refresh=False, transient=True) as live:

        def show() -> None:
            cells = seen.cells()
            table = Table(*cells, box=None)
            table.add_row(*cells.values())
            live.update(table, refresh=True)

        yield show


def _lines(data: dict[str, Any], seen: Watched) -> list[str]:
    if not seen.n_samples:
        return ["no sample came before it was stopped"]
    origin = "emulated" if data["emulated"] else "not recorded"
    lost = "losses unknown" if seen.lost is None else f"{seen.lost:,} lost"
    mean = "" if data["mean_power_w"] is None else f", {data['mean_power_w']:.4f} W on average"
    bound = "at least " if data["energy_is_lower_bound"] else ""
    return [
        f"{seen.n_samples:,} samples in {seen.seconds:.1f} s ({lost}) [{origin}]",
        f"{bound}{seen.energy_j:.6g} J{mean}, lowest {seen.lowest_w:.4f} W, highest {seen.highest_w:.4f} W",
    ]
