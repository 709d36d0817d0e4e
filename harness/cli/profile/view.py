"""Profiles as tables on a terminal. Every number is shown beside its interval and its origin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.cli.frame import columns
from harness.cli.terminal import block
from joulefleet.interval import Scale
from joulefleet.rounding import signed
from power import DeviceProfile
from power.profile import PhaseCost, Quantity

if TYPE_CHECKING:
    from harness.profiles.library import Stored
    from harness.results.history import HistoryRow

SHOWN_AS_FACTOR = 1.5
"""Below, a factor is shown as a percentage: up and down are much the same."""

SMALLEST_SHOWN = 5e-4
"""Half widths below this share of the mean are not worth their digits on a terminal."""

STARRED = "* fewer than three sessions: the spread between days is not in these intervals"

NAMES = {
    "probe": "probe epoch",
    "epoch": "later epoch",
    "round": "all epochs",
    "download": "download",
    "upload": "upload",
}


def number(quantity: Quantity | None, scale: Scale = Scale.LOG) -> str:
    """``2.431±0.012``; a factor for predictions; three digits where nothing is known of the error."""
    if quantity is None:
        return "-"
    mean, width, factor = quantity.mean, quantity.half_width_95, quantity.factor_95
    if factor is not None:
        error = f"×÷{digits(factor, 2)}" if factor >= SHOWN_AS_FACTOR else f"±{(factor - 1) * 100:.2g}%"
        return f"{digits(mean, 3)} {error}"
    if width is None:
        return digits(mean, 3)
    if width < abs(mean) * SMALLEST_SHOWN or not width:
        return digits(mean, 4)
    return quantity.on(scale).plus_minus("±")


def digits(value: float, count: int) -> str:
    """Significant digits without an exponent."""
    if value == 0:
        return "0"
    places = max(0, count - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{places}f}"


def summary_text(found: Sequence[Stored]) -> str:
    """One line per profile."""
    right = ("epoch s", "epoch J", "n", "sessions")
    rows = []
    for stored in found:
        p = stored.profile
        costs = [number(p.epoch.duration_s), number(p.epoch.gross_j), *_repeats(p.epoch.duration_s)]
        rows.append([p.device, p.task, p.backend, *costs, p.origin.value, *_which(stored)])
    table = columns(["device", "task", "backend", *right, "origin", "date", "id"], rows, right)
    starred = any(row[6].endswith("*") for row in rows)
    return block([table, STARRED]) if starred else table


def _which(stored: Stored) -> list[str]:
    """When its run began, and the id that tells it from others of the same device; phones have no run."""
    began = stored.created_utc
    return [f"{began:%Y-%m-%d %H:%M}" if began else "-", stored.id if stored.path else "-"]


def _repeats(quantity: Quantity) -> list[str]:
    """Repetitions and sessions; a star where the spread between sessions is in no interval."""
    if quantity.sessions is None:
        return [str(quantity.n or "-"), "-"]
    return [str(quantity.n), f"{quantity.sessions}{'' if quantity.session_sd_from else '*'}"]


def profile_lines(stored: Stored) -> list[str]:
    """All of one profile."""
    p = stored.profile
    lines = [
        f"{p.device}: {p.model} on {p.dataset} with {p.backend} [{p.origin.value}]",
        _work(p),
        _phases(p),
    ]
    lines += _powers(p)
    spread = p.epoch.duration_s
    if spread.session_sd is not None and spread.session_sd_from is not None and spread.mean:
        share = spread.session_sd / spread.mean
        lines.append(f"sessions differ by {share:.2%} in the time of an epoch ({spread.session_sd_from})")
    lines += [_curve(p)] if p.load_curve else []
    lines += [_levels(p)] if p.load_levels else []
    return lines + _remarks(stored)


def _work(p: DeviceProfile) -> str:
    """What was trained, as far as the profile says."""
    data = {True: "random ", False: "real ", None: ""}[p.synthetic_data]
    parts = [f"{p.samples} {data}samples per epoch in batches of {p.batch_size}"]
    if p.local_epochs:
        parts.append(f"{p.local_epochs} local epochs")
    if p.warmup_epochs:
        parts.append(f"{p.warmup_epochs} more before the probe to warm up")
    if p.threads:
        parts.append(f"{p.threads} threads")
    return ", ".join(parts)


def _phases(p: DeviceProfile) -> str:
    right = (
        "seconds",
        "gross J",
        "net J",
        "n",
        "sessions",
        "bytes",
    )  # marginal is net where nothing runs beside
    rows = []
    for key, name in NAMES.items():
        cost: PhaseCost | None = getattr(p, key)
        if cost is not None:
            size = getattr(cost, "bytes", None)
            values = [number(cost.duration_s), number(cost.gross_j), number(cost.net_j, Scale.LINEAR)]
            rows.append([name, *values, *_repeats(cost.duration_s), "" if size is None else f"{size:,}"])
    return columns(("phase", *right), rows, right)


def _powers(p: DeviceProfile) -> list[str]:
    powers = (("idle", p.idle_power_w), ("awake and waiting", p.wait_power_w))
    lines = [", ".join(f"{name} {number(q)} W" if q else f"{name}: not known" for name, q in powers)]
    if p.battery is not None:
        lines.append(f"battery {p.battery.capacity_j / 3600:.1f} Wh, charged at {p.battery.charge_w:.1f} W")
    if p.thermal is not None:
        t = p.thermal
        heat = ""
        if t.temperature_min_c is not None and t.temperature_max_c is not None:
            heat = f", {t.temperature_min_c:.0f} to {t.temperature_max_c:.0f} °C"
        unknown = f" ({t.epochs_unknown} without throttling telemetry)" if t.epochs_unknown else ""
        lines.append(
            f"{t.epochs_used} epochs used{unknown}, {t.epochs_throttled} throttled and left out{heat}"
        )
    return lines


def _curve(p: DeviceProfile) -> str:
    right = ("slowdown", "energy factor")
    rows = [[f"{x.load:.0%}", f"{x.slowdown:.3f}", f"{x.energy_factor:.3f}"] for x in p.load_curve]
    return columns(("background load", *right), rows, right)


def _levels(p: DeviceProfile) -> str:
    right = ("alone W", "epoch s", "gross J", "net J", "marginal J")
    rows = []
    for level in p.load_levels:
        name = "nothing" if level.kind == "none" else f"{level.kind} {level.load:.0%}"
        alone = "" if level.kind == "none" else number(level.load_only_power_w)
        cost = level.epoch
        values = [number(cost.duration_s), number(cost.gross_j)]
        values += [number(q, Scale.LINEAR) for q in (cost.net_j, cost.marginal_j)]
        rows.append([name, alone, *values])
    return columns(("beside", *right), rows, right)


def _remarks(stored: Stored) -> list[str]:
    p = stored.profile
    lines = [f"note: {note}" for note in p.notes]
    if p.provenance.basis:
        lines.append(f"basis: {p.provenance.basis}")
    if p.provenance.sources:
        lines.append(f"captures: {len(p.provenance.sources)}, by hash")
    if p.provenance.instrument is not None:
        instrument = p.provenance.instrument
        emulated = " (emulated)" if instrument.emulated else ""
        lines.append(f"instrument: {instrument.kind} {instrument.serial}{emulated}".rstrip())
    if p.provenance.calibration_sha256 is not None:
        lines.append(f"calibration: sha256 {p.provenance.calibration_sha256[:12]}")
    lines.append(f"from: {stored.place}")
    return lines


def history_text(rows: Sequence[HistoryRow], place: str) -> str:
    """One line per run: the quantity, and how it compares with the run before where that can be told."""
    right = (place, "change")
    table = []
    for before, row in zip([None, *rows], rows, strict=False):
        stored, quantity = row.stored, row.quantity
        began, name = _which(stored)
        work = f"{stored.profile.task} {stored.profile.backend}"
        change = _since(before, row, place)
        table.append([began, work, number(quantity), change, stored.profile.origin.value, stored.run, name])
    return columns(("date", "task", *right, "origin", "run", "id"), table, right)


def _since(before: HistoryRow | None, row: HistoryRow, place: str) -> str:
    """In percent, with an equals sign where the intervals do not tell a difference."""
    from harness.profiles.difference import compare_profiles

    if before is None or before.stored.profile.label != row.stored.profile.label:
        return ""
    change = compare_profiles(before.stored.profile, row.stored.profile).change(place)
    if change is None or math.isnan(change.ratio.mean):
        return "-"
    return f"{signed((change.ratio.mean - 1) * 100)} %" + ("" if change.clear else " (not clear)")
