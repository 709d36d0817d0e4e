"""Profiles on a page: an epoch beside every background load as bars with error bars, then every phase."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from harness.report.charts import Chart, DotPlot, Series
from harness.report.page import Cell, ErrorBar, Fold, Number, Section, Table
from harness.results.profile_table import profile_table
from harness.results.tables import Row
from joulefleet.interval import Interval, Scale
from joulefleet.provenance import Origin, weakest
from joulefleet.rounding import rounded
from power import DeviceProfile
from power.profile import PhaseCost, Quantity

UNITS = {"duration_s": "s", "gross_j": "J", "net_j": "J", "marginal_j": "J", "power_w": "W"}
DIFFERENCES = ("net_j", "marginal_j")
"""Less idle power, or that of the load beside: these may be negative."""
BARS = ("duration_s", "gross_j", "marginal_j")
POWERS = {"idle": "idle", "wait": "awake, waiting for the decision", "load only": "background load alone"}
NAMES = {"probe": "probe epoch", "epoch": "later epoch", "round": "all epochs"}


HOW = (
    "An interval is the 95 % one: scatter between repetitions and sessions, instrument, clock, noise and "
    "baseline together. With one repetition it is about that measurement only; with fewer than three "
    "sessions (*) the spread between days is not in it. Gross is everything the device drew; net is "
    "minus idle power; marginal is minus what the background load alone draws."
)
PARTS = {"probe": "probe epoch", "epoch": "later epoch", "download": "download", "upload": "upload"}
MOST_IN_FIGURE = 20
"""Profiles that a figure has room for."""


def cost_section(profiles: Sequence[DeviceProfile]) -> Section:
    """What the devices need, phase by phase: the figure of the answer, then its table, best first."""
    if not profiles:
        return Section("What it costs", "No profile could be built; the findings say why.")
    ordered = sorted(profiles, key=lambda p: (p.model, p.epoch.gross_j.mean))
    more = len(ordered) - MOST_IN_FIGURE
    text = f"Figures show the first {MOST_IN_FIGURE}; {more} more are in the table." if more > 0 else ""
    charts = [
        _by_phase(ordered[:MOST_IN_FIGURE], "Energy of each phase", "gross_j", "J"),
        _by_phase(ordered[:MOST_IN_FIGURE], "Time of each phase", "duration_s", "s"),
    ]
    rows = profile_table(ordered).rows
    return Section("What it costs", text, charts=charts, tables=[_epochs(rows, ordered)], small_print=HOW)


def _by_phase(profiles: Sequence[DeviceProfile], title: str, name: str, unit: str) -> DotPlot:
    rows: dict[str, list[Interval | None]] = {}
    for profile in profiles:
        costs: list[PhaseCost | None] = [getattr(profile, part) for part in PARTS]
        rows[_place(profile, profiles)] = [
            None if cost is None else getattr(cost, name).on(Scale.LOG) for cost in costs
        ]
    origin = weakest(profile.origin for profile in profiles).value
    return DotPlot(f"{title}, nothing beside it, 95 % intervals", tuple(PARTS.values()), rows, unit, origin)


def _place(profile: DeviceProfile, among: Sequence[DeviceProfile]) -> str:
    """Whatever tells it from the others; the model only where there are several."""
    models = {one.model for one in among}
    return f"{profile.device}, {profile.backend}" + (f", {profile.model}" if len(models) > 1 else "")


def profile_section(profiles: Sequence[DeviceProfile]) -> Section:
    """All profiles of a run, every number: folded away."""
    if not profiles:
        return Section("Profiles", "No profile could be built; the findings say why.", folded=True)
    rows = profile_table(profiles).rows
    curves = [profile for profile in profiles if len(profile.load_curve) > 1]
    folds = [
        Fold(profile.label, f"against background load{unmeasured_energy(profile)}", [_curve(profile)])
        for profile in curves
    ]
    tables = [_phases(rows), _powers(rows), *_notes(profiles)]
    return Section("Profiles: every phase, load curves, notes", tables=tables, folds=folds, folded=True)


def _notes(profiles: Sequence[DeviceProfile]) -> list[Table]:
    """What a reader of the numbers should know."""
    about: dict[str, list[str]] = {}
    for profile in profiles:
        for note in profile.notes:
            about.setdefault(note, []).append(profile.label)
    lines: list[Sequence[Cell]] = [
        [note, "all" if len(labels) == len(profiles) else ", ".join(labels)] for note, labels in about.items()
    ]
    return [Table(["note", "profiles"], lines, caption="What to know about them")] if lines else []


def _epochs(rows: Sequence[Row], profiles: Sequence[DeviceProfile]) -> Table:
    """One line per profile and background load, on scales that they share."""
    epochs = [row for row in rows if row["phase"] == "epoch"]
    full = {name: max((_upper(row, name) for row in epochs), default=0.0) for name in BARS}
    return Table(
        ["profile", "beside", "duration", "gross", "marginal", "n", "sessions", "origin"],
        [
            [
                _label(row),
                f"{row['background']} ({row['load']:.0%})",
                *(_bar(row, name, full[name]) for name in BARS),
                str(row["n"]),
                _sessions(row),
                Origin(row["origin"]),
            ]
            for row in epochs
        ],
        caption=f"A later epoch, the one that needs least energy first. {_clearly(profiles)}",
        best=_clearly_best(epochs, profiles),
    )


def _best_of(profiles: Sequence[DeviceProfile]) -> DeviceProfile | None:
    """The one that needs less energy for an epoch than any other, beyond the intervals of both."""
    if len(profiles) < 2 or len({profile.model for profile in profiles}) > 1:
        return None
    best, *others = sorted(profiles, key=lambda p: p.epoch.gross_j.mean)
    mine = best.epoch.gross_j.on(Scale.LOG)
    theirs = [other.epoch.gross_j.on(Scale.LOG) for other in others]
    return best if mine.known and all(one.known and mine.high < one.low for one in theirs) else None


def _clearly(profiles: Sequence[DeviceProfile]) -> str:
    if len(profiles) < 2 or len({profile.model for profile in profiles}) > 1:
        return ""
    if _best_of(profiles) is not None:
        return "Marked: its interval lies below all others."
    return "None is marked: the intervals of the first overlap with others."


def _clearly_best(epochs: Sequence[Row], profiles: Sequence[DeviceProfile]) -> set[int]:
    best = _best_of(profiles)
    if best is None:
        return set()
    same = (best.device, best.model, best.backend)
    return {
        i
        for i, row in enumerate(epochs)
        if (row["device"], row["model"], row["backend"]) == same and row["background"] == "none"
    }


def _phases(rows: Sequence[Row]) -> Table:
    return Table(
        ["profile", "phase", "duration", "gross", "net", "n", "sessions", "origin"],
        [
            [
                _label(row),
                NAMES.get(str(row["phase"]), str(row["phase"])),
                *(_text(row, name) for name in ("duration_s", "gross_j", "net_j")),
                str(row["n"]),
                _sessions(row),
                Origin(row["origin"]),
            ]
            for row in rows
            if row.get("power_w") is None and row["background"] == "none"
        ],
        caption="Every phase, nothing running beside it",
    )


def _powers(rows: Sequence[Row]) -> Table:
    return Table(
        ["profile", "while", "power", "n", "sessions", "origin"],
        [
            [
                _label(row),
                POWERS[row["phase"]] + _load(row),
                _text(row, "power_w"),
                str(row["n"]),
                _sessions(row),
                Origin(row["origin"]),
            ]
            for row in rows
            if row.get("power_w") is not None
        ],
        caption="Power while not training",
    )


def _resolved(quantity: Quantity | None) -> bool:
    """Whether a marginal energy is above nothing by more than its interval."""
    if quantity is None or quantity.mean <= 0:
        return False
    return quantity.half_width_95 is None or quantity.mean > quantity.half_width_95


def _measured_energy(profile: DeviceProfile) -> dict[float, bool]:
    """Load to whether its marginal energy was measured; what was not, the curve has from elsewhere."""
    known = {level.load: _resolved(level.epoch.marginal_j) for level in profile.load_levels}
    known.setdefault(0.0, _resolved(profile.epoch.marginal_j))
    return known if known[0.0] else dict.fromkeys(known, False)  # relative to nothing known


def unmeasured_energy(profile: DeviceProfile) -> str:
    """What has to be said where marginal energies could not be measured; empty if all were."""
    if not profile.load_levels:  # of literature and imports only the curve is known
        return ""
    known = _measured_energy(profile)
    if not known[0.0]:
        return "; the marginal energy of an epoch could not be measured, so its change is not drawn"
    missing = [f"{load:.0%}" for load, measured in sorted(known.items()) if not measured]
    return f"; its marginal energy could not be measured beside {', '.join(missing)}" if missing else ""


def _curve(profile: DeviceProfile) -> Chart:
    points = profile.load_curve
    known = _measured_energy(profile) if profile.load_levels else {}
    energy = [p.energy_factor if known.get(p.load, True) else np.nan for p in points]
    series = [Series("duration of an epoch", np.array([point.slowdown for point in points]), points=True)]
    if np.isfinite(energy).sum() > 1:
        series.append(Series("its marginal energy", np.array(energy), points=True))
    return Chart(
        "Duration and energy of an epoch beside a background load",
        "share of the processors that the load asks for (%)",
        "relative to no load",
        np.array([100 * point.load for point in points]),
        series,
        profile.origin.value,
    )


def _sessions(row: Row) -> str:
    """How many; a star where the spread between them is not in the interval."""
    if row.get("sessions") is None:
        return "unknown"
    return f"{row['sessions']}{'' if row.get('session_sd_from') else '*'}"


def _label(row: Row) -> str:
    return f"{row['device']}: {row['model']} on {row['dataset']}, {row['backend']}"


def _load(row: Row) -> str:
    return f": {row['background']} ({row['load']:.0%})" if row["background"] != "none" else ""


def _number(row: Row, name: str) -> Number | None:
    if row.get(name) is None:
        return None
    what, unit = name.rsplit("_", 1)
    half_width = row.get(f"{what}_half_width_95_{unit}")
    scale = Scale.LINEAR if name in DIFFERENCES else Scale.LOG
    return Number(row[name], UNITS[name], Origin(row["origin"]), half_width, scale)


def _text(row: Row, name: str) -> str:
    number = _number(row, name)
    return "" if number is None else number.text


def _bar(row: Row, name: str, full: float) -> Cell:
    number = _number(row, name)
    return "not measured" if number is None else ErrorBar(number, full)


def _upper(row: Row, name: str) -> float:
    number = _number(row, name)
    return 0.0 if number is None else number.interval.high


def profile_answers(profiles: Sequence[DeviceProfile], most: int = 4) -> list[str]:
    """What an epoch takes on each device, the one that needs least first."""
    profiles = sorted(profiles, key=lambda p: p.epoch.gross_j.mean)
    found = [
        f"An epoch of {p.model} on {p.device} with {p.backend} takes {_shown(p.epoch.duration_s, 's')} and "
        f"{_shown(p.epoch.gross_j, 'J')} ({p.origin.value})."
        for p in profiles[:most]
    ]
    rough = [
        p for p in profiles if (p.epoch.gross_j.half_width_95 or 0.0) > ROUGH * abs(p.epoch.gross_j.mean)
    ]
    if rough:
        found.append(
            f"{len(rough)} of {len(profiles)} profiles are known roughly only: their energies scatter by "
            "more than half. Measure more repetitions, on a machine and devices that do nothing else."
        )
    if len(profiles) > most:
        found.append(f"{len(profiles) - most} more profiles are below.")
    return found


ROUGH = 0.5
"""Half width over mean from which on a reader is told that more repetitions are needed."""


def _shown(quantity: Quantity, unit: str) -> str:
    if quantity.half_width_95 is None or math.isnan(quantity.half_width_95):
        return f"{rounded(quantity.mean, 3)} {unit} (interval not known)"
    return f"{quantity.on(Scale.LOG).plus_minus()} {unit}"
