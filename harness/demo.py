"""The demo: bench, profile, emulation, one page. Small, honest, and every part of it real but the watts."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from device_agents.job import Job
from device_agents.protocol import ProbeDone
from device_agents.transport import LocalTransport
from device_agents.workloads.softmax import Softmax
from emulator.emulation import Result, emulate
from emulator.outcome import RoundOutcome
from emulator.scenario.model import Fleet, ProtocolSection, Scenario, TaskSection, TrainerSection
from fedjoule.errors import DataQualityError, FedjouleError
from fedjoule.runstore import Run, RunStore
from harness.capture import Capture
from harness.measure import Measurement, measure
from harness.profiles import build_profile
from harness.report.demo_page import demo_page
from power.emulated.options import EmulatorOptions
from power.emulated.service import EmulatorProcess
from power.meter import MeterConfig
from power.profile import DeviceProfile, save_profile

log = logging.getLogger(__name__)

STEPS = (
    "start the device and its meter",
    "measure",
    "build the profile",
    "emulate the fleet",
    "write the page",
)

ATTEMPTS = 3
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
ROUNDS_ON_BENCH = 4
LOCAL_EPOCHS = 5
BENCH_SAMPLES = 150_000
"""Samples of one epoch on the bench: some 0.15 s of training, long against the meter's 0.2 ms."""

DEVICES = 30
CLIENTS_PER_ROUND = 5
ROUNDS = 30
SPEED_SPREAD = 0.4
"""Standard deviation of log speed among the invented devices of the fleet."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo found, and where it is."""

    path: Path
    profile: DeviceProfile
    outcomes: tuple[RoundOutcome, ...]
    test_accuracy: float
    origin: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data for ``--json``; every number sits beside its origin."""
        epoch = self.profile.epoch
        return {
            "run": str(self.path),
            "report": str(self.path / "report.html"),
            "profile": {
                "origin": self.profile.origin.value,
                "epoch_duration_s": epoch.duration_s.model_dump(),
                "epoch_energy_j": epoch.gross_j.model_dump(),
            },
            "emulation": {
                "origin": self.origin,
                "rounds": len(self.outcomes),
                "virtual_time_s": sum(o.duration_ns for o in self.outcomes) * 1e-9,
                "energy_j": sum(o.energy_j for o in self.outcomes),
                "test_accuracy": self.test_accuracy,
            },
        }

    def summary(self) -> list[str]:
        """The same for people."""
        epoch, origin = self.profile.epoch, self.profile.origin.value
        joules = sum(o.energy_j for o in self.outcomes)
        seconds = sum(o.duration_ns for o in self.outcomes) * 1e-9
        duration, energy = _quantity(epoch.duration_s, "s"), _quantity(epoch.gross_j, "J")
        fleet = f"{len(self.outcomes)} rounds of {CLIENTS_PER_ROUND} of {DEVICES} devices"
        cost = f"{seconds:.3g} s and {joules:.3g} J on the virtual clock [{self.origin}]"
        return [
            f"bench      one local epoch takes {duration} and {energy} [{origin}]",
            f"emulation  {fleet}: {cost}, test accuracy {self.test_accuracy:.1%} [{self.origin}]",
            f"report     {self.path / 'report.html'}",
            "next       `fedjoule doctor` checks this machine; `fedjoule meter scan` looks for an instrument",
        ]


def _quantity(quantity: Any, unit: str) -> str:
    from fedjoule.provenance import Origin
    from harness.report.page import Number

    return Number(quantity.mean, unit, Origin.EMULATED, quantity.half_width_95).text


def run_demo(root: Path, seed: int, *, on_step: Callable[[int, str], None] = lambda *_: None) -> DemoResult:
    """Run the demo into a new run under ``root``."""
    with RunStore(root).create("demo", kind="demo") as run:
        capture, profile = _measure_and_profile(run, seed, on_step)
        name = f"{profile.device}_{profile.model}.json"
        profile = save_profile(profile, run.subfolder("profiles") / name)
        on_step(3, STEPS[3])
        result, outcomes = _emulate(run, profile, seed)
        on_step(4, STEPS[4])
        page = demo_page(capture, profile, outcomes, result.record, run.record)
        page.write(run.path / "report.html")
        on_step(len(STEPS), "done")
        accuracy, origin = result.record.test_accuracy or 0.0, str(result.record.facts["cost_origin"])
        return DemoResult(run.path, profile, tuple(outcomes), accuracy, origin)


def _measure_and_profile(
    run: Run, seed: int, on_step: Callable[[int, str], None]
) -> tuple[Capture, DeviceProfile]:
    """Measure, and measure again if a machine too busy with other things lost samples."""
    for attempt in count(1):
        on_step(0, STEPS[0])
        try:
            capture = _bench(run, seed, lambda: on_step(1, STEPS[1]))
            on_step(2, STEPS[2])
            return capture, build_profile([capture], dataset="synthetic", backend="numpy")
        except FedjouleError as error:
            if attempt == ATTEMPTS or not (error.transient or isinstance(error, DataQualityError)):
                raise
            log.warning("attempt %d: %s", attempt, error)
        (run.path / "bench").rename(run.subfolder("failed") / f"bench-attempt{attempt}")
    raise RuntimeError("count() ended")  # for the type checker: it never does


def _bench(run: Run, seed: int, on_measuring: Callable[[], None]) -> Capture:
    """A process as the device, an emulated Monsoon that turns its CPU time into watts."""
    job = Job(workload="softmax", samples=BENCH_SAMPLES, epochs=LOCAL_EPOCHS, seed=seed)
    agent = [sys.executable, "-m", "device_agents.payload.agent", "--state", str(run.subfolder("device"))]
    with LocalTransport(ONE_THREAD).open(agent) as channel:
        load = f"process:pid={channel.pid},idle=0.8,dynamic=2.0,voltage=4.0"
        options = EmulatorOptions(signal=load, noise_a=0.002, tau_s=0.005, seed=seed)
        with EmulatorProcess("monsoon-lvpm", options) as instrument:
            plan = Measurement(
                capture_id=f"{run.record.run_id}/bench",
                device="this-machine",
                transport="local",
                meter=MeterConfig(
                    kind="monsoon-lvpm",
                    port=instrument.address,
                    voltage_v=4.0,
                    voltage_max_v=4.2,
                    current_limit_a=4.0,
                ),
                job=job,
                batch_size=Softmax().batch_size,
                rounds=ROUNDS_ON_BENCH,
                idle_s=1.0,
            )
            on_measuring()
            return measure(plan, channel, run.subfolder("bench"), decide=_all_but_the_last)


def _all_but_the_last(number: int, _: ProbeDone) -> bool:
    """The last round shows an early exit: the device stops after its probe."""
    return number < ROUNDS_ON_BENCH


SCENARIO = Scenario(
    name="demo",
    fleet=Fleet(devices=DEVICES, speed_spread=SPEED_SPREAD),
    task=TaskSection(name="digits-softmax", learning_rate=Softmax().learning_rate),
    protocol=ProtocolSection(rounds=ROUNDS, k=CLIENTS_PER_ROUND, local_epochs=LOCAL_EPOCHS),
    # So little to train that a second process would take longer to start than it saves.
    trainer=TrainerSection(workers=1),
    checkpoint_every=0,
)


def _emulate(run: Run, profile: DeviceProfile, seed: int) -> tuple[Result, list[RoundOutcome]]:
    """A fleet of devices like the measured one, some faster, some slower; FedAvg on the embedded digits."""
    outcomes: list[RoundOutcome] = []
    result = emulate(run, SCENARIO, seed, folder="emulation", profiles=[profile], on_round=outcomes.append)
    return result, outcomes
