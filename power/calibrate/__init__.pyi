from power.calibrate.derive import DerivedCalibration, derive_calibration
from power.calibrate.points import MeasuredPoint, ReferencePoint, measure_point
from power.calibration import MeterCalibration, load_calibration, toml_fragment
from power.correction import calibrated_info, live_correction

__all__ = [
    "DerivedCalibration", "MeasuredPoint", "MeterCalibration", "ReferencePoint", "calibrated_info",
    "derive_calibration", "live_correction", "load_calibration", "measure_point", "toml_fragment",
]  # fmt: skip
