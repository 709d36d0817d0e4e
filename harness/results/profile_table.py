"""Profiles as one table: a row per phase, background load and power, each mean beside its interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.results.tables import Row, RunTable
from power import DeviceProfile
from power.profile import PhaseCost, Quantity

KEY: dict[str, type] = {"device": str, "model": str, "dataset": str, "backend": str, "origin": str}
QUANTITIES = ("duration_s", "gross_j", "net_j", "marginal_j", "power_w")
PROFILES = {
    **KEY,
    "phase": str,
    "background": str,
    "load": float,
    **{
        column: float
        for name in QUANTITIES
        for column in (name, "{}_half_width_95_{}".format(*name.rsplit("_", 1)))
    },
    "n": int,
    "bytes": int,
}
PHASES = ("probe", "epoch", "round", "download", "upload")


def profile_table(profiles: Sequence[DeviceProfile]) -> RunTable:
    """What every profile says."""
    return RunTable("profiles", PROFILES, [row for profile in profiles for row in _rows(profile)])


def _rows(profile: DeviceProfile) -> Iterator[Row]:
    key = {
        "device": profile.device,
        "model": profile.model,
        "dataset": profile.dataset,
        "backend": profile.backend,
        "origin": profile.origin.value,
        "background": "none",
        "load": 0.0,
    }
    for phase in PHASES:
        cost: PhaseCost | None = getattr(profile, phase)
        if cost is not None:
            yield {**key, "phase": phase, **_cost(cost), "bytes": getattr(cost, "bytes", None)}
    for level in profile.load_levels[1:]:  # the first is the epoch without load, which is above
        beside = {**key, "background": level.name, "load": level.load}
        yield {**beside, "phase": "epoch", **_cost(level.epoch)}
        if level.load_only_power_w is not None:
            yield {**beside, "phase": "load only", **_power(level.load_only_power_w)}
    for phase, power_w in (("idle", profile.idle_power_w), ("wait", profile.wait_power_w)):
        if power_w is not None:
            yield {**key, "phase": phase, **_power(power_w)}


def _cost(cost: PhaseCost) -> Row:
    row: Row = {"n": cost.duration_s.n}
    for name in ("duration_s", "gross_j", "net_j", "marginal_j"):
        row |= _quantity(name, getattr(cost, name))
    return row


def _power(power_w: Quantity) -> Row:
    return {"n": power_w.n, **_quantity("power_w", power_w)}


def _quantity(name: str, quantity: Quantity | None) -> Row:
    if quantity is None:
        return {}
    what, unit = name.rsplit("_", 1)
    return {name: quantity.mean, f"{what}_half_width_95_{unit}": quantity.half_width_95}
