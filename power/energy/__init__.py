"""From samples to joules: windows of time, integration, idle power, noise, and one interval for all of it."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "power.energy.baseline": ("IDLE_PARTS", "Baseline", "measure_baseline"),
        "power.energy.index": ("EnergyIndex", "integrate_recording"),
        "power.energy.integration": ("integrate",),
        "power.energy.measurement": ("MeasuredWindow", "measure_windows"),
        "power.energy.uncertainty": (
            "EnergyBudget",
            "MeasuredRecording",
            "UncertaintyPart",
            "combined_half_width_j",
            "error_limits",
            "error_sensitivities",
            "gross_energy",
            "idle_energy",
            "net_energy",
        ),
        "power.energy.windows": ("DEFAULT_POLICY", "GapPolicy", "Window", "WindowEnergy"),
    },
)
