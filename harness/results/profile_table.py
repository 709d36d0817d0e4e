"""Profiles as one plain table: a row per phase, background load and power."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.results.tables import Row, RunTable
from power import DeviceProfile
from power.profile import PhaseCost, Quantity


def _column(name: str, part: str) -> str:
    """``gross_j`` and ``sd`` are ``gross_sd_j``: the unit comes last."""
    what, unit = name.rsplit("_", 1)
    return f"{what}_{part}_{unit}"


KEY: dict[str, type] = {"device": str, "model": str, "dataset": str, "backend": str, "origin": str}
QUANTITIES = ("duration_s", "gross_j", "net_j", "marginal_j", "power_w")
SPREADS = ("half_width_95", "sd", "session_sd")
"""What follows a quantity in columns of its own, before the unit: ``gross_session_sd_j``."""
PROFILES = {
    **KEY,
    "phase": str,
    "background": str,
    "load": float,
    **{column: float for name in QUANTITIES for column in (name, *(_column(name, part) for part in SPREADS))},
    "n": int,
    "sessions": int,
    "session_sd_from": str,
    "bytes": int,
}
COSTS = ("probe", "epoch", "round", "download", "upload")


def profile_table(profiles: Sequence[DeviceProfile]) -> RunTable:
    """What every profile says."""
    return RunTable("profiles", PROFILES, [row for profile in profiles for row in _profile_rows(profile)])


def _profile_rows(profile: DeviceProfile) -> Iterator[Row]:
    key = {
        "device": profile.device,
        "model": profile.model,
        "dataset": profile.dataset,
        "backend": profile.backend,
        "origin": profile.origin.value,
        "background": "none",
        "load": 0.0,
    }
    for phase in COSTS:
        cost: PhaseCost | None = getattr(profile, phase)
        if cost is not None:
            yield {**key, "phase": phase, **_cost_row(cost), "bytes": getattr(cost, "bytes", None)}
    for level in profile.load_levels[1:]:  # the first is the epoch without load, which is above
        beside = {**key, "background": level.name, "load": level.load}
        yield {**beside, "phase": "epoch", **_cost_row(level.epoch)}
        if level.load_only_power_w is not None:
            yield {**beside, "phase": "load only", **_power_row(level.load_only_power_w)}
    for phase, power_w in (("idle", profile.idle_power_w), ("wait", profile.wait_power_w)):
        if power_w is not None:
            yield {**key, "phase": phase, **_power_row(power_w)}


def _cost_row(cost: PhaseCost) -> Row:
    row = _repeats(cost.duration_s)
    for name in ("duration_s", "gross_j", "net_j", "marginal_j"):
        row |= _quantity_row(name, getattr(cost, name))
    return row


def _power_row(power_w: Quantity) -> Row:
    return {**_repeats(power_w), **_quantity_row("power_w", power_w)}


def _repeats(quantity: Quantity) -> Row:
    return {"n": quantity.n, "sessions": quantity.sessions, "session_sd_from": quantity.session_sd_from}


def _quantity_row(name: str, quantity: Quantity | None) -> Row:
    if quantity is None:
        return {}
    return {name: quantity.mean, **{_column(name, part): getattr(quantity, part) for part in SPREADS}}
