"""One measurement: the meter runs from before the first epoch until after the last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from device_agents.job import Job
from device_agents.protocol import ProbeDone
from device_agents.session import AgentSession
from device_agents.transport import Channel
from fedjoule.runstore import Journal
from harness.bench.ending import Ending
from harness.bench.idle import leave_alone
from harness.bench.metering import Metering
from harness.capture import MARKERS_FILE, Capture, DeviceFacts, open_capture, write_capture
from harness.clock import fit_pings
from power.meter import MeterConfig
from power.model import SampleBlock

PINGS = 20


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
    never = Ending()
    with Journal(folder / MARKERS_FILE) as markers:
        session = AgentSession(channel, on_marker=lambda m: markers.append(m.model_dump(mode="json")))
        pings = session.ping(PINGS)
        with Metering(plan.meter, folder, on_block=on_block) as metering:
            idle = [leave_alone(plan.idle_s, never)]
            for number in range(1, plan.rounds + 1):
                session.run_round(plan.job, partial(decide, number))
                on_round(number)
            idle.append(leave_alone(plan.idle_s, never))
            metering.wait_until(idle[-1].end_ns)
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
