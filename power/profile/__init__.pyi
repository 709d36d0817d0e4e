from power.profile.cost_arrays import (
    LoadCurves,
    PhaseCosts,
    ProfileCosts,
    missing_costs,
    phase_costs,
    profile_costs,
)
from power.profile.model import (
    Battery,
    DeviceProfile,
    EnergyKind,
    LoadPoint,
    MeasuredLoad,
    PhaseCost,
    Quantity,
    Thermal,
    TransferCost,
    interpolate,
    load_profile,
    save_profile,
)

__all__ = [
    "Battery", "DeviceProfile", "EnergyKind", "LoadCurves", "LoadPoint", "MeasuredLoad", "PhaseCost",
    "PhaseCosts", "ProfileCosts", "Quantity", "Thermal", "TransferCost", "interpolate", "load_profile",
    "missing_costs", "phase_costs", "profile_costs", "save_profile",
]  # fmt: skip
