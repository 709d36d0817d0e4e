from power.energy.baseline import IDLE_PARTS, Baseline, measure_baseline
from power.energy.index import EnergyIndex, integrate_recording
from power.energy.integration import integrate
from power.energy.measurement import MeasuredWindow, measure_windows
from power.energy.recorded import RecordedEnergy, measure_energy
from power.energy.uncertainty import (
    EnergyBudget,
    MeasuredRecording,
    UncertaintyPart,
    combined_half_width_j,
    error_factors,
    error_sensitivities,
    gross_energy,
    idle_energy,
    net_energy,
    unit_half_width_j,
)
from power.energy.windows import DEFAULT_POLICY, GapPolicy, Window, WindowEnergy

__all__ = [
    "DEFAULT_POLICY", "IDLE_PARTS", "Baseline", "EnergyBudget", "EnergyIndex", "GapPolicy",
    "MeasuredRecording", "MeasuredWindow", "RecordedEnergy", "UncertaintyPart", "Window", "WindowEnergy",
    "combined_half_width_j", "error_factors", "error_sensitivities", "gross_energy", "idle_energy",
    "integrate", "integrate_recording", "measure_baseline", "measure_energy", "measure_windows", "net_energy",
    "unit_half_width_j",
]  # fmt: skip
