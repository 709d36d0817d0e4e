"""How long a plan takes: its client-epochs, and measured speeds."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from device_agents.workloads import TASKS
from emulator.experiments.plan import ExperimentPlan
from emulator.round.selector import Probe, Profiling
from emulator.scenario.model import Scenario
from emulator.selectors.registry import SELECTORS

FORWARD = 1 / 3
"""Of a training step, as the emulator charges it (docs/rounds.md)."""

SAMPLES_PER_CPU_S = {
    "mnist-lenet5": 11_200.0,
    "cifar10-resnet18": 220.0,
    "digits-mlp": 41_000.0,
}
"""Training samples per second of processor time, all processes counted, on two shared cores of an AMD EPYC.

LeNet-5: six rounds of ``mnist-lenet5-iid`` with FedAvg minus two rounds, everything included. ResNet-18:
two whole runs of ``toa-eoa``. Digits: all 70 runs of ``sensitivity``, without `BEGIN_S`; there the emulator
itself takes most of the time.
"""
BEGIN_S = 0.7
"""Before the first round of a run, so that ``table1`` with ``smoke`` comes out at the 55 s that it took."""
ON_ONE_CORE = ("digits-mlp",)
"""Too small to be shared among workers."""
MEASURED = (
    "from the processor time per training sample, measured on x86-64 server cores that others used too "
    "(docs/experiments.md), divided by two idle cores where workers share it"
)

# All training samples, and the server's validation plus test samples, where the scenario does not say.
_TRAINING_SAMPLES = {"mnist": 60_000, "cifar10": 50_000, "digits": 1_437}
_SERVER_SAMPLES = {"mnist": 10_000, "cifar10": 10_000, "digits": 360}


@dataclass(frozen=True, slots=True)
class Effort:
    """What a plan costs.

    Attributes:
        runs: Emulations.
        client_epochs: Local epochs of one device, at most: a method may probe fewer candidates than it may.
        two_cores_s: Wall time on two idle cores; ``None`` where the speed of a task was not measured.
    """

    runs: int
    client_epochs: int
    two_cores_s: float | None


def effort_of(plan: ExperimentPlan) -> Effort:
    """Add up all runs of a plan."""
    epochs, seconds = 0.0, 0.0
    counts = Counter((one.variant, one.selector) for one in plan.planned)
    for (variant, selector), count in counts.items():
        scenario = plan.variant(variant).scenario
        per_run = client_epochs(scenario, selector)
        epochs += count * per_run
        seconds += count * (BEGIN_S + _two_cores_s(scenario, per_run))
    return Effort(len(plan.planned), round(epochs), None if math.isnan(seconds) else seconds)


def client_epochs(scenario: Scenario, selector: str) -> float:
    """Local epochs of one run, a forward pass counted as a third of one."""
    protocol, kind = scenario.protocol, SELECTORS.load(selector)
    probed = scenario.candidates
    per_round = {
        Probe.NONE: protocol.k * protocol.local_epochs,
        Probe.BATCH: protocol.k * protocol.local_epochs,
        Probe.LOSS: protocol.k * protocol.local_epochs + FORWARD * probed,
        Probe.EPOCH: probed + protocol.k * (protocol.local_epochs - 1),
    }[kind.probe]
    once = 0 if kind.profiling is Profiling.NONE else scenario.fleet.devices
    return once + protocol.rounds * per_round


def _two_cores_s(scenario: Scenario, epochs: float) -> float:
    """Of one run; NaN where it is not known."""
    name = scenario.task.name
    if name not in SAMPLES_PER_CPU_S:
        return math.nan
    data = scenario.task.data or TASKS[name].data_set
    if data not in _TRAINING_SAMPLES:
        return math.nan
    per_device = (scenario.task.train_samples or _TRAINING_SAMPLES[data]) / scenario.fleet.devices
    samples = float(scenario.task.options.get("samples_per_client", per_device))
    server = min(_SERVER_SAMPLES[data], 2 * (scenario.task.server_samples or _SERVER_SAMPLES[data]))
    done = epochs * samples + scenario.protocol.rounds * server * FORWARD
    return done / SAMPLES_PER_CPU_S[name] / (1 if name in ON_ONE_CORE else 2)
