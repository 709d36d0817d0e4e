"""What a person sees while a bench runs: a table on a terminal, a line per event elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

from harness.bench.job.live_status import StatusBoard
from harness.bench.journal import Listener, tell
from harness.bench.matrix import plan_devices
from harness.cli.progress import stop_on_signals
from harness.cli.terminal import console, echo

if TYPE_CHECKING:
    from rich.table import Table

    from harness.bench.job.live_status import DeviceNow
    from harness.bench_run.job_threads import Runner
    from harness.bench_run.run import BenchFiles, View
    from harness.rounds.session import RunFiles, Session

REFRESH_S = 0.25
FAILURE_CHARS = 120
"""Of a failure in the table; the rest would push the devices off the screen, and `bench status` has it."""

ROUND_EVENTS = ("round", "registration")
SAID_ABOVE = ("run", "profiles")
"""Events that stay on a terminal, above the table."""


def live_view(files: BenchFiles, stop: threading.Event) -> View:
    """A view for `harness.bench_run.run.run_bench`; after a stop it says how to go on."""

    @contextlib.contextmanager
    def view(session: Session, runner: Runner) -> Iterator[None]:
        tell(echo, f"run: {session.path}", err=True)
        show = _on_terminal if sys.stderr.isatty() else _as_lines
        try:
            with show(files, session, runner, stop):
                yield
        finally:
            if runner.outcomes.stopped:
                tell(echo, f"to go on: {files.command(session.path)}", err=True)

    return view


@contextlib.contextmanager
def shown(
    files: RunFiles, epochs: int, rounds: int
) -> Iterator[tuple[threading.Event, Listener, StatusBoard]]:
    """For rounds on several devices: a table on a terminal, a line per event elsewhere.

    Gives a stop by signals, a listener, and the board that the table is drawn from; after a stop it says how
    to go on.
    """
    places: list[str] = []
    last = [""]
    board = StatusBoard(plan_devices(files.bench_plan, files.inventory))
    live = sys.stderr.isatty()

    def listener(event: str, what: str, facts: dict[str, object]) -> None:
        if event == "run":
            places.append(what)
        text = f"run: {what}" if event == "run" else f"{what}: {_event_text(event, facts)}"
        if event in ROUND_EVENTS:
            last[0] = _round_text(event, what, rounds)
        if not live or event in SAID_ABOVE or facts.get("error"):
            say(text)

    def title() -> str:
        return "stopping: running jobs are being ended" if stop.is_set() else last[0]

    with stop_on_signals() as stop:
        try:
            with _drawn(lambda: table(board.snapshot(), title(), epochs)) if live else nullcontext():
                yield stop, listener, board
        except KeyboardInterrupt:
            for place in places:
                echo(f"to go on: {files.command(Path(place))}", err=True)
            raise


def _round_text(event: str, name: str, rounds: int) -> str:
    """``round 3 of 8`` for 0003, with what else its name says."""
    number, _, rest = name.partition("_")
    if event != "round" or not number.isdigit():
        return event.replace("_", " ")
    return f"round {int(number)} of {rounds}" + (f": {rest.replace('_', ' ')}" if rest else "")


def say(text: str) -> None:
    """A line with the time of day."""
    echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)


def _event_text(event: str, facts: dict[str, object]) -> str:
    text = str(facts.get("stage", "")) if event == "stage" else event.replace("_", " ")
    if said := facts.get("error") or facts.get("note"):
        text += f": {said}"
    if facts.get("again_in_s") is not None:
        text += f"; again in {facts['again_in_s']:g} s"
    return text


@contextlib.contextmanager
def _as_lines(_: BenchFiles, session: Session, runner: Runner, __: threading.Event) -> Iterator[None]:
    """One line per event, as it happens."""

    def line(event: str, job: str, facts: dict[str, object]) -> None:
        done = len(runner.outcomes.finished)
        say(f"[{done}/{len(runner.jobs)}] {job}: {_event_text(event, facts)}")

    session.listener = line
    yield


@contextlib.contextmanager
def _on_terminal(
    files: BenchFiles, session: Session, runner: Runner, stop: threading.Event
) -> Iterator[None]:
    """A table of all devices, with how far the run is."""
    eta, epochs = Eta(runner), files.plan.local_epochs
    with _drawn(lambda: table(session.bench.board.snapshot(), eta.text(stopping=stop.is_set()), epochs)):
        yield


@contextlib.contextmanager
def _drawn(picture: Callable[[], Table]) -> Iterator[None]:
    """A table that is drawn anew four times a second; what is printed meanwhile stands above it."""
    from rich.live import Live

    over = threading.Event()
    live = Live(console=console(), auto_refresh=False)

    def draw() -> None:
        live.update(picture())
        live.refresh()

    def keep_drawing() -> None:
        while not over.wait(REFRESH_S):
            draw()

    # A terminal that is closed ends the drawing, not the run.
    thread = threading.Thread(target=tell, args=(keep_drawing,), name="live view", daemon=True)
    live.start()
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        tell(draw)
        tell(live.stop)


class Eta:
    """When a run will be over, judging by the jobs finished in this session."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._began_s = time.monotonic()
        self._before = len(runner.outcomes.finished)

    def text(self, *, stopping: bool) -> str:
        """Progress in one line."""
        runner = self._runner
        finished, left = len(runner.outcomes.finished), runner.queue.left
        parts = [f"{finished} of {len(runner.jobs)} jobs finished"]
        if runner.outcomes.failed:
            parts.append(f"{len(runner.outcomes.failed)} failed")
        done = finished - self._before
        if stopping:
            parts.append("stopping: running jobs are being ended")
        elif done and left:
            left_s = (time.monotonic() - self._began_s) / done * left
            parts.append(f"{clock(left_s)} left at this pace")
        return ", ".join(parts)


def table(devices: list[DeviceNow], title: str, epochs: int) -> Table:
    """Every device in one row."""
    from rich.table import Table

    failed = any(device.failure for device in devices)
    names = ["device", "job", "doing", "for", "epoch", "watts", "temperature", *["last failure"] * failed]
    shown = Table(*names, title=title, box=None)
    now_s = time.monotonic()
    for device in devices:
        busy = bool(device.job)
        shown.add_row(
            device.device,
            device.job + (f" (attempt {device.attempt})" if device.attempt > 1 else ""),
            ": ".join(filter(None, (device.stage.replace("_", " "), device.phase))) or "-",
            clock(now_s - device.stage_began_s) if busy else "",
            f"{device.epoch}/{epochs}" if device.epoch else "",
            "" if device.power_w is None else f"{device.power_w:.3f}",
            "" if device.temperature_c is None else f"{device.temperature_c:.1f} °C",
            *[shorten(device.failure, FAILURE_CHARS, placeholder=" ...")] * failed,
        )
    return shown


def clock(seconds: float) -> str:
    """``1:02:03``, or ``2:03`` below an hour."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
