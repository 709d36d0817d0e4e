from emulator.experiments.catalogue import EXPERIMENTS, plan_experiment
from emulator.experiments.numbers import as_csv, as_data
from emulator.experiments.paper import PAPER_SAVING
from emulator.experiments.plan import (
    ExperimentPlan,
    PlanEntry,
    Preset,
    SweptQuantity,
    Variant,
    VariantPlan,
    make_plan,
)
from emulator.experiments.results import (
    ExperimentResults,
    load_experiment,
    load_published,
    publish_experiment,
)
from emulator.experiments.runner import check_donors, take_over
from emulator.experiments.summary import MethodRow, Runs, VariantSummary, summarise, summary_of
from emulator.experiments.switches import switches_of

__all__ = [
    "EXPERIMENTS", "PAPER_SAVING", "ExperimentPlan", "ExperimentResults",
    "MethodRow", "PlanEntry", "Preset", "Runs", "SweptQuantity", "Variant", "VariantPlan",
    "VariantSummary", "as_csv", "as_data", "check_donors", "load_experiment", "load_published",
    "make_plan", "plan_experiment", "publish_experiment", "summarise", "summary_of",
    "switches_of", "take_over",
]  # fmt: skip
