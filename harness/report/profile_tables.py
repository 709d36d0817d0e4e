"""Profiles on a page: an epoch beside every background load as bars with error bars, then every phase."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.report.charts import Chart, Series
from harness.report.page import Cell, ErrorBar, Fold, Number, Section, Table
from harness.results.profile_table import profile_table
from harness.results.tables import Row
from joulefleet.interval import Scale
from joulefleet.provenance import Origin
from power import DeviceProfile

UNITS = {"duration_s": "s", "gross_j": "J", "net_j": "J", "marginal_j": "J", "power_w": "W"}
DIFFERENCES = ("net_j", "marginal_j")
"""Less idle power, or that of the load beside: these may be negative."""
BARS = ("duration_s", "gross_j", "marginal_j")
POWERS = {"idle": "idle", "wait": "awake, waiting for the decision", "load only": "background load alone"}
NAMES = {"probe": "probe epoch", "epoch": "later epoch", "round": "all epochs"}


def profile_section(profiles: Sequence[DeviceProfile]) -> Section:
    """All profiles of a run."""
    if not profiles:
        return Section("Profiles", "No profile could be built; the findings say why.")
    rows = profile_table(profiles).rows
    how = (
        "An interval is the 95 % one: scatter between repetitions and sessions, instrument, clock, noise and "
        "baseline together. With one repetition it is about that measurement only; with fewer than three "
        "sessions (*) the spread between days is not in it. Gross is everything the device drew; net is "
        "minus idle power; marginal is minus what the background load alone draws."
    )
    curves = [profile for profile in profiles if len(profile.load_curve) > 1]
    folds = [
        Fold(profile.label, "against background load", [_curve(profile)], is_open=i == 0)
        for i, profile in enumerate(curves)
    ]
    tables = [_epochs(rows), _phases(rows), _powers(rows), *_notes(profiles)]
    return Section("Profiles", tables=tables, folds=folds, small_print=how)


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


def _epochs(rows: Sequence[Row]) -> Table:
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
        caption="A later epoch beside each background load",
    )


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


def _curve(profile: DeviceProfile) -> Chart:
    points = profile.load_curve
    return Chart(
        "Duration and energy of an epoch beside a background load",
        "share of the processors that the load asks for (%)",
        "relative to no load",
        np.array([100 * point.load for point in points]),
        [
            Series("duration of an epoch", np.array([point.slowdown for point in points]), points=True),
            Series("its marginal energy", np.array([p.energy_factor for p in points]), points=True),
        ],
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
