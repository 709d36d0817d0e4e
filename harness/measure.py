"""One measurement: the meter runs from before the first epoch until after the last."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from device_agents.job import Job
from device_agents.protocol import ProbeDone
from device_agents.session import AgentSession
from device_agents.transport import Channel
from fedjoule.errors import MeterError
from fedjoule.runstore import Journal
from harness.capture import MARKERS_FILE, Capture, DeviceFacts, HostWindow, open_capture, write_capture
from harness.clock import fit_pings
from power.meter import MeterConfig, open_meter
from power.model import SampleBlock
from power.recorder import record

PINGS = 20
FIRST_SAMPLE_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """What to measure.

    Attributes:
        capture_id: Unique name of the capture.
        device: Name of the device.
        transport: How it is reached.
        meter: The instrument on it.
        job: The work of one round.
        batch_size: Of the training, for the record.
        rounds: How many rounds; each is one repetition.
        idle_s: How long to leave the device alone before and after.
    """

    capture_id: str
    device: str
    transport: str
    meter: MeterConfig
    job: Job
    batch_size: int
    rounds: int
    idle_s: float


def measure(
    plan: Measurement,
    channel: Channel,
    folder: Path,
    *,
    decide: Callable[[int, ProbeDone], bool],
    on_block: Callable[[SampleBlock], None] = lambda _: None,
    on_round: Callable[[int], None] = lambda _: None,
) -> Capture:
    """Run the rounds on a device while its meter records; everything goes to ``folder``.

    Args:
        plan: What to do.
        channel: A fresh agent on the device.
        folder: An existing, empty folder.
        decide: Given the round and the probe's report, whether the device goes on.
        on_block: Sees every block of samples, for a live view.
        on_round: Told the number of each finished round.
    """
    with Journal(folder / MARKERS_FILE) as markers:
        session = AgentSession(channel, on_marker=lambda m: markers.append(m.model_dump(mode="json")))
        pings = session.ping(PINGS)
        with _recording(plan.meter, folder, on_block):
            idle = [_idle(plan.idle_s)]
            for number in range(1, plan.rounds + 1):
                session.run_round(plan.job, partial(decide, number))
                on_round(number)
            idle.append(_idle(plan.idle_s))
        pings += session.ping(PINGS)
    write_capture(
        folder,
        capture_id=plan.capture_id,
        device=DeviceFacts(
            name=plan.device,
            transport=plan.transport,
            python=session.hello.python,
            boot_id=session.hello.boot_id,
        ),
        workload=plan.job.workload,
        samples=plan.job.samples,
        batch_size=plan.batch_size,
        clock=fit_pings(pings),
        idle=tuple(idle),
    )
    return open_capture(folder)


def _idle(seconds: float) -> HostWindow:
    start_ns = time.monotonic_ns()
    time.sleep(seconds)
    return HostWindow(start_ns=start_ns, end_ns=time.monotonic_ns())


@contextlib.contextmanager
def _recording(config: MeterConfig, folder: Path, on_block: Callable[[SampleBlock], None]) -> Iterator[None]:
    """Record in a thread; returns once the first samples are there, ends after the last are on disk."""
    stop, started = threading.Event(), threading.Event()
    failure: list[BaseException] = []

    def watch(block: SampleBlock) -> None:
        started.set()
        on_block(block)

    def run() -> None:
        try:
            with open_meter(config) as meter:
                record(meter, folder, config=config, stop=stop, on_block=watch)
        except BaseException as error:
            failure.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=run, name="recorder", daemon=True)
    thread.start()
    try:
        if not started.wait(FIRST_SAMPLE_TIMEOUT_S):
            raise MeterError(f"{config.kind}: no sample within {FIRST_SAMPLE_TIMEOUT_S:g} s")
        if not failure:
            yield
    finally:
        stop.set()
        thread.join()
    if failure:
        raise failure[0]
