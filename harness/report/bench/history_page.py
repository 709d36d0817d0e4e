"""The page of ``joulefleet profile history``: one device over its runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from harness.profiles.difference import compare_profiles
from harness.report.charts import DotPlot
from harness.report.page import Page, Section, Table
from harness.results.history import HistoryRow
from joulefleet.interval import Scale
from joulefleet.provenance import weakest

UNITS = {"s": "s", "j": "J", "w": "W"}
PHASES = {"probe": "the first epoch", "epoch": "an epoch", "round": "a round",
          "download": "a download", "upload": "an upload"}  # fmt: skip
MEASURES = {"duration_s": "the time", "gross_j": "the energy", "net_j": "the energy above idle",
            "marginal_j": "the marginal energy"}  # fmt: skip


def write_history_page(rows: Sequence[HistoryRow], place: str, out: Path) -> Path:
    """Store the page; replaces an older one."""
    device = rows[0].stored.profile.device
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row.stored.profile.label)]
    runs = len({row.stored.run for row in rows})
    page = Page(
        f"History of {device}",
        f"{_sentence(_words(place))} ({place}) in {runs} runs, the newest against the oldest.",
        [_section(group, place) for group in groups],
        answers=[_answer(group, place) for group in groups],
    )
    return page.write(out, replace=True)


def _words(place: str) -> str:
    """``the energy of an epoch`` for ``epoch.gross_j``."""
    phase, _, measure = place.partition(".")
    if phase in PHASES and measure in MEASURES:
        return f"{MEASURES[measure]} of {PHASES[phase]}"
    return f"the {place.removesuffix('_w').replace('_', ' ')}"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _answer(group: Sequence[HistoryRow], place: str) -> str:
    """How the newest run compares with the oldest."""
    first, last = group[0].stored, group[-1].stored
    what = f"{last.profile.task} with {last.profile.backend}"
    if len(group) == 1:
        return f"{what}: one run, nothing to compare."
    change = compare_profiles(first.profile, last.profile).change(place)
    if change is None or not change.ratio.known:
        return f"{what}: the intervals are too wide to tell whether {_words(place)} changed."
    word = "a clear change" if change.clear else "no clear change"
    return f"{what}: {word} of {_words(place)}, {change.percent_text()}."


def _section(group: Sequence[HistoryRow], place: str) -> Section:
    profile = group[0].stored.profile
    unit = UNITS[place.rpartition("_")[2]]
    origin = weakest([row.stored.profile.origin for row in group])
    dots = {
        f"{_date(row)} {row.stored.id}": [row.quantity.on(Scale.LOG) if row.quantity else None]
        for row in group
    }
    plot = DotPlot(f"{_sentence(_words(place))} by run", ["run"], dots, unit, origin.value)
    table_rows = [
        [_date(row), row.quantity.on(Scale.LOG).plus_minus() if row.quantity else "not measured",
         str(row.quantity.n if row.quantity else "-"), row.stored.run or row.stored.place, row.stored.id,
         row.stored.profile.origin]
        for row in group
    ]  # fmt: skip
    table = Table(("date (UTC)", f"{place}, {unit}", "n", "run", "profile", "origin"), table_rows)
    return Section(f"{profile.task} with {profile.backend}", charts=[plot], tables=[table])


def _date(row: HistoryRow) -> str:
    began = row.stored.created_utc
    return f"{began:%Y-%m-%d %H:%M:%S}" if began else "not known"
