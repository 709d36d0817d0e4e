"""An experiment of milliseconds: two scenarios, a formula instead of training."""

from pathlib import Path

from emulator.experiments.plan import ExperimentPlan, Preset, SweptQuantity, Variant, VariantPlan, make_plan
from emulator.experiments.runner import start
from emulator.runs.batch import play
from emulator.scenario.model import FleetSection, ProtocolSection, Scenario, TracesSection, TrainerSection

METHODS = ("fedavg", "oort", "fedrank")


def variant(name: str = "plain", **changes: object) -> Variant:
    scenario = Scenario(
        name=name,
        fleet=FleetSection(devices=12, traces=TracesSection(at_end="wrap", users=12, days=2)),
        protocol=ProtocolSection(rounds=4, k=3, candidates=6, local_epochs=2),
        trainer=TrainerSection(kind="surrogate"),
    )
    return Variant(
        name=name,
        title=f"MNIST, LeNet-5; {name}",
        scenario=scenario,
        reductions=("12 devices, 4 rounds, a formula instead of training",),
        paper_task="mnist-lenet5",
        paper_split="noniid",
    ).model_copy(update=changes)


def small_plan(seeds: tuple[int, ...] = (0, 1)) -> ExperimentPlan:
    base = variant()
    more = variant(
        "candidates-9",
        baseline="plain",
        swept=SweptQuantity(quantity="candidates", key="protocol.candidates"),
    )
    protocol = more.scenario.protocol.model_copy(update={"candidates": 9})
    more = more.model_copy(update={"scenario": more.scenario.model_copy(update={"protocol": protocol})})
    plans = [
        VariantPlan(base, METHODS[:1], seeds, METHODS[1:], seeds),
        VariantPlan(more, ("fedrank",), seeds),
    ]
    return make_plan("small", Preset.SMOKE, "Does it work", plans)


def played(root: Path, plan: ExperimentPlan) -> Path:
    with start(root, plan) as run:
        play(run, plan)
    return run.path
