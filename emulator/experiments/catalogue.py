"""The experiments by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from emulator.experiments.plan import ExperimentPlan, Preset, VariantPlan, make_plan, playable, with_own_code
from emulator.own_code.files import GivenCode
from joulefleet.registry import Registry

EXPERIMENTS: Registry[Callable[[Preset], list[VariantPlan]]] = Registry(
    what="experiment",
    group="joulefleet.experiments",
    builtin={
        "table1": (
            "emulator.experiments.designs.table1:variant_plans",
            "Accuracy, energy and speed of all methods, beside the paper's table",
        ),
        "toa-eoa": ("emulator.experiments.designs.toa_eoa:variant_plans", "Time and energy to an accuracy"),
        "budget": (
            "emulator.experiments.designs.budget:variant_plans",
            "What a budget of energy or time buys, in a static world and among people",
        ),
        "aggregation": (
            "emulator.experiments.designs.aggregation:variant_plans",
            "Updates weighed by size, or 1/K each as the appendix prints it",
        ),
        "ablation": (
            "emulator.experiments.designs.ablation:variant_plans",
            "FedRank without each of its parts",
        ),
        "generalisation": (
            "emulator.experiments.designs.generalisation:variant_plans",
            "One expert against several; a policy from MNIST on other tasks",
        ),
        "sensitivity": (
            "emulator.experiments.designs.sensitivity:variant_plans",
            "Exponents, budgets and number of candidates",
        ),
        "probing": (
            "emulator.experiments.designs.probing:variant_plans",
            "Probing M candidates against no probing, and against no early exit",
        ),
        "interference": (
            "emulator.experiments.designs.interference:variant_plans",
            "The same fleet with and without user activity",
        ),
        "volatility": (
            "emulator.experiments.designs.volatility:variant_plans",
            "Where probing begins to pay: volatility of costs, share of the probe, number of candidates",
        ),
    },
)


def plan_experiment(
    name: str,
    preset: Preset,
    *,
    seeds: Sequence[int] | None = None,
    only: Sequence[str] = (),
    given: GivenCode | None = None,
) -> ExperimentPlan:
    """The plan of a named experiment; arguments as in `make_plan` and `with_own_code`.

    Raises:
        ConfigError: There is no such experiment or variant.
    """
    plans = EXPERIMENTS.load(name)(preset)
    question = EXPERIMENTS.entries()[name].summary
    if given is not None:
        plans = playable([with_own_code(one, given) for one in plans], given)
    return make_plan(name, preset, question, plans, seeds=seeds, only=only)
