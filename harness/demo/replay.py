"""Act 2's experiment: a fleet of devices like those of act 1, generated people, three methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from emulator import Scenario
from emulator.experiments import ExperimentPlan, Preset, Variant, VariantPlan, make_plan
from emulator.scenario import FleetSection, ProtocolSection, TaskSection, TracesSection
from harness.demo.size import DemoSize

METHODS = ("fedavg", "oort", "fedrank")
DEVICES = 30
CHOSEN = 5
CANDIDATES = 15
LOCAL_EPOCHS = 5
SAMPLES = 40
"""Of each device. The training part of the digits has 1,258 samples, enough for 30 devices."""

SPEED_SPREAD = 0.4
"""Standard deviation of log speed among the invented devices: one in six takes 2/3 of its time or less."""


def replay_plan(profiles: Sequence[Path], size: DemoSize) -> ExperimentPlan:
    """LeNet-5, the model that act 1 measured, on the embedded digits; costs from exactly these profiles."""
    scenario = Scenario(
        name="demo-replay",
        fleet=FleetSection(
            devices=DEVICES,
            profiles=tuple(str(path) for path in profiles),
            speed_spread=SPEED_SPREAD,
            traces=TracesSection(at_end="wrap", users=DEVICES, days=3),
        ),
        task=TaskSection(
            name="mnist-lenet5",
            data="digits28",
            partition="dir_client",
            options={"alpha": 0.5, "samples_per_client": SAMPLES},
            # Small shards need more steps than the task's batches of 32 give them.
            batch_size=16,
            learning_rate=0.02,
        ),
        protocol=ProtocolSection(
            rounds=size.rounds, k=CHOSEN, candidates=CANDIDATES, local_epochs=LOCAL_EPOCHS
        ),
        checkpoint_every=0,
    )
    variant = Variant(
        name=scenario.name,
        title="LeNet-5 on the embedded digits; Dirichlet 0.5 per device (dir_client)",
        scenario=scenario,
        reductions=(_reduction(size),),
    )
    question = "FedRank against FedAvg and Oort on a fleet made of the profiles of act 1"
    return make_plan("demo-replay", Preset.SMOKE, question, [VariantPlan(variant, METHODS, size.seeds)])


def _reduction(size: DemoSize) -> str:
    return (
        f"1,797 digits enlarged to 28 x 28, {DEVICES} devices of {SAMPLES} samples, {CHOSEN} of {CANDIDATES} "
        f"candidates, {size.rounds} rounds: shows how it works, too small to conclude anything from"
    )
