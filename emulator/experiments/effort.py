"""How long a plan takes: its client-epochs, and measured speeds."""

from __future__ import annotations

from dataclasses import dataclass

from emulator.experiments.plan import ExperimentPlan, Planned
from emulator.selectors.base import SELECTORS, Probe, Profiling

FORWARD = 1 / 3
"""Of a training step, as the emulator charges it (docs/emulator.md)."""

SAMPLES_PER_CPU_S = {
    "mnist-lenet5": 14_500.0,
    "cifar10-resnet18": 350.0,
    "digits-mlp": 9_400.0,
}
"""Training samples per second of processor time, all processes counted; machine: docs/experiments.md.

LeNet-5: `python -m benchmarks multi_client_training`, 24.2 client-epochs of 600 samples. ResNet-18: 4 clients
of 32 random images, three epochs minus one epoch, one worker. Digits: 10 rounds of ``digits-iid`` with
FedRank from start to end, where the emulator itself takes most of the time.
"""
MEASURED = (
    "from the processor time per training sample, measured on x86-64 server cores that others used too "
    "(docs/experiments.md), divided by two idle cores"
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
        cpu_s: Processor time; ``None`` where no speed of a task was measured.
    """

    runs: int
    client_epochs: int
    cpu_s: float | None

    @property
    def two_cores_s(self) -> float | None:
        """Wall time on two idle cores."""
        return None if self.cpu_s is None else self.cpu_s / 2


def effort_of(plan: ExperimentPlan) -> Effort:
    """Add up all runs of a plan."""
    epochs = [client_epochs(plan, planned) for planned in plan.planned]
    seconds = [_cpu_s(plan, planned, count) for planned, count in zip(plan.planned, epochs, strict=True)]
    known = [s for s in seconds if s is not None]
    return Effort(len(epochs), round(sum(epochs)), sum(known) if len(known) == len(seconds) else None)


def client_epochs(plan: ExperimentPlan, planned: Planned) -> float:
    """Local epochs of one run, a forward pass counted as a third of one."""
    scenario = plan.scenario_of(planned)
    protocol, kind = scenario.protocol, SELECTORS.load(planned.selector)
    probed = scenario.candidates
    per_round = {
        Probe.NONE: protocol.k * protocol.local_epochs,
        Probe.BATCH: protocol.k * protocol.local_epochs,
        Probe.LOSS: protocol.k * protocol.local_epochs + FORWARD * probed,
        Probe.EPOCH: probed + protocol.k * (protocol.local_epochs - 1),
    }[kind.probe]
    once = 0 if kind.profiling is Profiling.NONE else scenario.fleet.devices
    return once + protocol.rounds * per_round


def _cpu_s(plan: ExperimentPlan, planned: Planned, epochs: float) -> float | None:
    from emulator.assembly.assemble import task_of

    scenario = plan.scenario_of(planned)
    data = scenario.task.data or task_of(scenario.task).data_set
    speed = SAMPLES_PER_CPU_S.get(scenario.task.name)
    if speed is None or data not in _TRAINING_SAMPLES:
        return None
    per_device = _TRAINING_SAMPLES[data] / scenario.fleet.devices
    samples = float(scenario.task.options.get("samples_per_client", per_device))
    server = min(_SERVER_SAMPLES[data], 2 * (scenario.task.server_samples or _SERVER_SAMPLES[data]))
    return (epochs * samples + scenario.protocol.rounds * server * FORWARD) / speed
