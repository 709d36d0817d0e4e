"""What a device takes for one model: the profile as stored, its load curve, and many profiles as arrays."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "power.profile.cost_arrays": (
            "LoadCurves",
            "PhaseCosts",
            "ProfileCosts",
            "missing_costs",
            "phase_costs",
            "profile_costs",
        ),
        "power.profile.load_curve": ("LoadPoint", "interpolate"),
        "power.profile.model": (
            "Battery",
            "DeviceProfile",
            "EnergyKind",
            "MeasuredLoad",
            "PhaseCost",
            "Quantity",
            "Thermal",
            "TransferCost",
            "load_profile",
            "save_profile",
        ),
    },
)
