from harness.bench.plan import Plan, load_plan
from harness.bench_run.run import read_bench_files, run_bench
from harness.clock.align import align
from harness.demo.run import run_demo
from harness.evidence.capture import Capture, open_capture
from harness.evidence.clock_fit import ClockFit
from harness.federate.files import read_federate_files
from harness.federate.run import run_federation
from harness.inventory import Inventory, load_inventory
from harness.outputs import OUTPUTS, write_outputs
from harness.probing.fidelity import measure_fidelity
from harness.probing.predict import predict_savings
from harness.probing.run import read_probing_files, run_probing
from harness.probing.validation import validate_run
from harness.profiles.build import build_profile
from harness.profiles.library import build_run_profiles, find_profile
from harness.results.stored_run import StoredRun, open_run

__all__ = [
    "OUTPUTS", "Capture", "ClockFit", "Inventory", "Plan", "StoredRun", "align", "build_profile",
    "build_run_profiles", "find_profile", "load_inventory", "load_plan", "measure_fidelity", "open_capture",
    "open_run", "predict_savings", "read_bench_files", "read_federate_files", "read_probing_files",
    "run_bench", "run_demo", "run_federation", "run_probing", "validate_run", "write_outputs",
]  # fmt: skip
