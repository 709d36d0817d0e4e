"""The metrics of a comparison: how each is called and shown. Imports little, since ``--help`` names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from joulefleet.interval import Scale

if TYPE_CHECKING:
    from device_agents.workloads import Metric

LAST_TESTED = 10
"""Accuracy is averaged over so many last tested rounds: from round to round it swings by several points on
skewed splits."""
TITLES = {
    "accuracy": (f"accuracy, last {LAST_TESTED} tested rounds", 100.0, "%"),
    "best_accuracy": ("best accuracy", 100.0, "%"),
    "accuracy_within_energy": ("accuracy within the energy budget", 100.0, "%"),
    "accuracy_within_time": ("accuracy within the time budget", 100.0, "%"),
    "time_to_target_s": ("time of rounds to target", 1.0, "s"),
    "calendar_to_target_s": ("calendar time to target", 1 / 3600, "h"),
    "energy_to_target_j": ("energy to target, without waiting", 1.0, "J"),
    "rounds_to_target": ("rounds to target", 1.0, ""),
    "time_s": ("time of rounds", 1.0, "s"),
    "calendar_s": ("calendar time", 1 / 3600, "h"),
    "energy_j": ("energy, without waiting", 1.0, "J"),
    "round_time_s": ("time per round", 1.0, "s"),
    "round_energy_j": ("energy per round, without waiting", 1.0, "J"),
    "classes_per_cohort": ("classes per cohort", 1.0, ""),
}
"""Metric to title, factor from SI to the unit shown, and that unit."""
METRICS = tuple(TITLES)
WITHIN = ("accuracy_within_energy", "accuracy_within_time")
"""Those that are known only if a budget is given."""
OF_THE_TASK = frozenset({"accuracy", "best_accuracy", *WITHIN})
"""Those that are an error or a perplexity where the task is judged by one."""
SCALES = {metric: Scale.LOGIT if unit == "%" else Scale.LOG for metric, (_, _, unit) in TITLES.items()}
"""On which scale each one's interval is made: none is negative, and no accuracy over 100 %."""
SHOWN = (
    *("accuracy", "time_to_target_s", "calendar_to_target_s", "energy_to_target_j"),
    *("round_time_s", "round_energy_j"),
)
"""Those of a comparison that names none."""
TO_TARGET = frozenset({"time_to_target_s", "calendar_to_target_s", "energy_to_target_j", "rounds_to_target"})
"""Those that are lower bounds (censored) where a run never reached the target."""
LOWER_BOUND = ">= "
"""Before a number of which a part is not known, or which was not reached."""
WITHOUT_COSTS = frozenset({"accuracy", "best_accuracy", "rounds_to_target", "classes_per_cohort"})
"""Those that are the same whoever's probes count."""


def called(name: str, metric: Metric) -> str:
    """A metric by the name that files have for it: what the task is judged by has its own."""
    return name.replace("accuracy", metric.name) if name in OF_THE_TASK else name


def worded(text: str, metric: Metric) -> str:
    """Words about accuracies where the task is judged by another metric."""
    if metric.name == "accuracy":
        return text
    shown = f"{metric.name} %" if metric.share else metric.name
    for ours, theirs in (("accuracy - FedAvg, points", f"{shown} - FedAvg"), ("accuracy %", shown)):
        text = text.replace(ours, theirs)
    return text.replace("accuracy", metric.name).replace("Accuracy", metric.name)


def title_of(name: str, metric: Metric) -> tuple[str, float, str]:
    """Title, factor and unit of one of `TITLES` where the task is judged by ``metric``."""
    title, factor, unit = TITLES[name]
    if name not in OF_THE_TASK or metric.name == "accuracy":
        return title, factor, unit
    better = "" if metric.higher_is_better else " (less is better)"
    return title.replace("accuracy", metric.name) + better, 100.0 if metric.share else 1.0, "%" * metric.share


def scale_of(name: str, metric: Metric) -> Scale:
    """On what scale its interval is made: an error is not negative, an R2 or a metric of one's own may be."""
    if name not in OF_THE_TASK or metric.share:
        return SCALES[name]
    return Scale.LINEAR if metric.higher_is_better else Scale.LOG


def target_text(target: float, metric: Metric, digits: int = 1) -> str:
    """A target as people read it."""
    return (
        value_text(target, metric, digits) if metric.share else f"{metric.name} {value_text(target, metric)}"
    )


def value_text(value: float, metric: Metric, digits: int = 1) -> str:
    """What a model reached, as people read it."""
    return f"{value:.{digits}%}" if metric.share else f"{value:.4g}"
