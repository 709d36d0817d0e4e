from emulator import Scenario, Selector, load_results, load_scenario, resume
from emulator import compare_emulations as compare
from emulator import run_all as emulate
from harness import build_run_profiles as build_profiles
from harness import open_run, predict_savings
from joulefleet.errors import JoulefleetError
from joulefleet.interval import Interval
from joulefleet.provenance import Origin
from power import (
    DeviceProfile,
    MeterConfig,
    load_profile,
    measure_energy,
    open_meter,
    open_recording,
    record,
    reference_fleet,
)
from traces import TraceSet, import_traces
from traces import synthesise as synthesise_traces

__version__: str

__all__ = [
    "DeviceProfile", "Interval", "JoulefleetError", "MeterConfig", "Origin", "Scenario", "Selector",
    "TraceSet", "build_profiles", "compare", "emulate", "import_traces", "load_profile", "load_results",
    "load_scenario",
    "measure_energy", "open_meter", "open_recording", "open_run", "predict_savings", "record",
    "reference_fleet", "resume", "synthesise_traces",
]  # fmt: skip
