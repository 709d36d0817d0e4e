"""The metrics of a comparison: how each is called and shown. Imports little, since ``--help`` names them."""

from __future__ import annotations

from joulefleet.interval import Scale

LAST_TESTED = 10
"""Accuracy is averaged over so many last tested rounds: from round to round it swings by several points on
skewed splits."""
TITLES = {
    "accuracy": (f"accuracy, last {LAST_TESTED} tested rounds", 100.0, "%"),
    "best_accuracy": ("best accuracy", 100.0, "%"),
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
