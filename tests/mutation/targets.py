"""What is mutated, and the tests that are asked: those of the same package that need no live parts.

Other tests may notice a mutant too; the share that dies here is a lower bound of what `make test` notices.
"""

from __future__ import annotations

MODULES = (
    "power/energy/baseline.py",
    "power/energy/index.py",
    "power/energy/integration.py",
    "power/energy/measurement.py",
    "power/energy/noise.py",
    "power/energy/recorded.py",
    "power/energy/uncertainty.py",
    "power/energy/windows.py",
    "power/timebase.py",
    "harness/profiles/build.py",
    "harness/profiles/cells.py",
    "harness/profiles/curve.py",
    "harness/profiles/epochs.py",
    "harness/profiles/exchange.py",
    "harness/profiles/fit.py",
    "harness/profiles/quantities.py",
    "harness/profiles/scale.py",
    "harness/profiles/sessions.py",
    "harness/clock/align.py",
    "harness/clock/bursts.py",
    "harness/clock/correlate.py",
    "harness/clock/line.py",
    "harness/clock/offsets.py",
    "harness/clock/pattern.py",
    "harness/clock/refine.py",
    "emulator/fleet/batteries.py",
    "emulator/fleet/battery_debt.py",
    "emulator/fleet/conditions.py",
    "emulator/fleet/network.py",
    "emulator/fleet/slowdown.py",
    "emulator/fleet/state.py",
    "emulator/fleet/world.py",
    "emulator/round/accounting.py",
    "emulator/round/budgets.py",
    "emulator/round/outcome.py",
    "emulator/round/reward.py",
    "emulator/round/timeline.py",
    "emulator/compare/metrics.py",
    "emulator/compare/statistics.py",
    "emulator/compare/table.py",
    "joulefleet/interval.py",
    "joulefleet/runstore/folder.py",
    "joulefleet/runstore/journal.py",
    "joulefleet/runstore/run.py",
    "joulefleet/runstore/salvage.py",
    "joulefleet/runstore/store.py",
    "joulefleet/runstore/table.py",
)

TESTS = (
    "tests/power/by_hand/test_*.py",
    "tests/harness/by_hand/test_*.py",
    "tests/power/test_*.py",
    "tests/harness/test_clock*.py",
    "tests/harness/test_profile_*.py",
    "tests/harness/test_sessions.py",
    "tests/harness/test_short_transfers.py",
    "tests/emulator/test_*.py",
    "tests/emulator/compare/test_*.py",
    "tests/joulefleet/test_*.py",
    "tests/hostile/test_*folder*.py",
)
"""Patterns of the files whose tests are asked."""

DEVELOPMENT: tuple[tuple[int, int, str], ...] = ((1, 180, ""),)
"""Samples whose survivors tests were written after: seed, count and modules."""

LIVE = (
    "tests/power/test_hvpm_*.py",
    "tests/power/test_lvpm_*.py",
    "tests/power/test_ina219_*.py",
    "tests/power/test_usb_queue.py",
    "tests/power/test_scan.py",
    "tests/power/test_stalls.py",
    "tests/power/test_streaming.py",
    "tests/power/test_*coverage*.py",
    "tests/power/test_documentation.py",
    "tests/harness/test_clock_live.py",
    "tests/emulator/test_data_sets.py",
    "tests/emulator/test_experiments_*.py",
    "tests/emulator/test_large_fleets.py",
    "tests/emulator/test_partition.py",
    "tests/emulator/test_policies.py",
    "tests/emulator/test_ray*.py",
    "tests/emulator/test_resume.py",
    "tests/emulator/test_run*.py",
    "tests/emulator/test_scenario_example.py",
    "tests/emulator/test_software.py",
    "tests/emulator/test_train_*.py",
    "tests/emulator/test_view_seam.py",
    "tests/emulator/test_vision.py",
    "tests/emulator/test_documentation.py",
)
"""But not these: live parts, or long computations about something else."""
