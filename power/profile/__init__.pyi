from power.profile.cost_arrays import (
    CORES,
    LoadCurves,
    PhaseCosts,
    ProfileCosts,
    Spreads,
    missing_costs,
    phase_costs,
    profile_costs,
)
from power.profile.model import (
    Battery,
    Cores,
    DeviceProfile,
    EnergyKind,
    LoadPoint,
    MeasuredLoad,
    PhaseCost,
    PublishedSpread,
    Thermal,
    TransferCost,
    interpolate,
    load_profile,
    save_profile,
)
from power.profile.quantity import SESSIONS_FOR_SPREAD, Quantity, StatedSpread, quantity_from_sessions

__all__ = [
    "CORES", "SESSIONS_FOR_SPREAD", "Battery", "Cores", "DeviceProfile", "EnergyKind", "LoadCurves",
    "LoadPoint", "MeasuredLoad", "PhaseCost", "PhaseCosts", "ProfileCosts", "PublishedSpread", "Quantity",
    "Spreads", "StatedSpread", "Thermal", "TransferCost", "interpolate", "load_profile", "missing_costs",
    "phase_costs", "profile_costs", "quantity_from_sessions", "save_profile",
]  # fmt: skip
