"""Reading what was measured starts fast: no scipy, no pyarrow before it is needed."""

import subprocess
import sys

import pytest

HEAVY = {"scipy", "pyarrow", "pandas", "torch", "usb", "serial"}


@pytest.mark.parametrize(
    ("statement", "barred"),
    [
        ("import power", HEAVY | {"numpy", "pydantic"}),
        ("from power import open_recording, salvage_recording", HEAVY),
        ("from power import load_profile; from power.profile import profile_costs", HEAVY),
        ("from power.energy import gross_energy, integrate_recording, measure_baseline", HEAVY),
        ("from power.emulated.options import EmulatorOptions as E; E(tau_s=0.1).build_signal()", HEAVY),
    ],
)
def test_a_name_brings_no_heavy_package(statement: str, barred: set[str]) -> None:
    code = f"import sys; {statement}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not barred & set(loaded.stdout.split())
