"""Figures of a run's world over its days: who might train, load, drop-outs, batteries."""

from __future__ import annotations

import numpy as np

from emulator import Fate
from emulator.runs import Course
from harness.report.charts import Band, Chart, Series
from joulefleet.provenance import Origin

X = "virtual time (h after the first midnight)"
REASONS = {
    Fate.LEFT: "left",
    Fate.BATTERY: "battery empty",
    Fate.DEADLINE: "too late",
    Fate.DIVERGED: "diverged",
}
BATTERIES = {"battery_median": "median", "battery_low": "lowest tenth ends at"}


def course_charts(course: Course) -> list[Chart]:
    """One chart a question, nights shaded; what never happened or is not known has none."""
    nights = [Band(a, b, "night", "night: 22 to 6 h") for a, b in course.nights]
    reasons = [
        Series(REASONS[fate], counts, points=True) for fate, counts in course.dropped.items() if counts.any()
    ]
    levels = [
        Series(BATTERIES[name], level) for name, level in course.batteries.items() if np.isfinite(level).any()
    ]
    load = [Series("participants", course.under_load)] if np.nansum(course.under_load) else []
    wanted = [
        ("Devices that might train", "devices", [Series("eligible", course.eligible)]),
        ("Participants beside an app", "of a round's participants (%)", load),
        ("Drop-outs by reason", "devices of a round", reasons),
        ("Batteries of the fleet", "level (%)", sorted(levels, key=lambda one: one.label, reverse=True)),
    ]
    return [
        Chart(title, X, label, course.hours, series, Origin.EMULATED.value, bands=nights)
        for title, label, series in wanted
        if series
    ]
