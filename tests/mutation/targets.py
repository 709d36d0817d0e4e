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
    "harness/profiles/difference.py",
    "harness/profiles/epochs.py",
    "harness/profiles/exchange.py",
    "harness/profiles/fit.py",
    "harness/profiles/library.py",
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
    "emulator/fleet/hashed.py",
    "emulator/fleet/interference.py",
    "emulator/fleet/motion.py",
    "emulator/fleet/network.py",
    "emulator/fleet/slowdown.py",
    "emulator/fleet/state.py",
    "emulator/fleet/variation.py",
    "emulator/fleet/world.py",
    "emulator/round/accounting.py",
    "emulator/round/budgets.py",
    "emulator/round/outcome.py",
    "emulator/round/reward.py",
    "emulator/round/timeline.py",
    "emulator/compare/censored.py",
    "emulator/compare/comparable.py",
    "emulator/compare/load.py",
    "emulator/compare/metrics.py",
    "emulator/compare/render.py",
    "emulator/compare/statistics.py",
    "emulator/compare/table.py",
    "emulator/compare/titles.py",
    "joulefleet/interval.py",
    "joulefleet/runstore/columns.py",
    "joulefleet/runstore/folder.py",
    "joulefleet/runstore/journal.py",
    "joulefleet/runstore/notes.py",
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
    "tests/harness/test_before_after.py",
    "tests/harness/test_cli_compare.py",
    "tests/harness/test_cli_profile*.py",
    "tests/harness/test_run_notes.py",
    "tests/harness/test_sessions.py",
    "tests/harness/test_short_transfers.py",
    "tests/emulator/test_*.py",
    "tests/emulator/compare/test_*.py",
    "tests/joulefleet/test_*.py",
    "tests/hostile/test_*folder*.py",
)
"""Patterns of the files whose tests are asked."""

_ADDED = (
    "harness/profiles/difference,harness/profiles/library,emulator/fleet/hashed,emulator/fleet/interference,"
    "emulator/fleet/motion,emulator/fleet/variation,emulator/compare/comparable,emulator/compare/load,"
    "emulator/compare/render,emulator/compare/titles"
)

_READ = (
    "emulator/round/timeline,emulator/round/budgets,emulator/compare/load,emulator/compare/table,"
    "emulator/fleet/batteries,joulefleet/runstore/table"
)
"""Modules whose mutants were all read before tests were written."""

DEVELOPMENT: tuple[tuple[int, int, str], ...] = (
    (1, 223, ""),
    (2, 83, "power"),
    (2, 129, "harness"),
    (3, 310, "power"),
    (4, 100, "harness/clock"),
    (5, 153, "harness/clock"),
    (6, 283, "harness/profiles"),
    (20, 90, "power"),
    (20, 92, "harness/profiles"),
    (20, 70, "harness/clock"),
    (2, 375, "emulator/"),
    (2, 180, "joulefleet/"),
    (101, 239, ""),
    (102, 203, ""),
    (103, 204, ""),
    (7, 92, ""),
    (8, 121, ""),
    (2, 37, _ADDED),
    (0, 1000, "harness/profiles/difference,emulator/compare/render,emulator/compare/titles"),
    (104, 200, ""),
    (9, 2000, _READ),
)
"""Samples whose survivors tests were written after: seed, count and modules. Counts are as large as it takes
to hold what was drawn before modules were added."""

LIVE = (
    "tests/power/test_hvpm_*.py",
    "tests/power/test_lvpm_*.py",
    "tests/power/test_ina219_*.py",
    "tests/power/test_usb_queue.py",
    "tests/power/test_scan.py",
    "tests/power/test_stalls.py",
    "tests/power/test_streaming.py",
    "tests/power/test_*coverage*.py",
    "tests/power/test_calibrat*.py",
    "tests/power/test_*import*.py",
    "tests/power/test_redecode.py",
    "tests/power/test_safety.py",
    "tests/power/test_selftest.py",
    "tests/power/test_documentation.py",
    "tests/harness/test_clock_live.py",
    "tests/emulator/test_budget_page.py",
    "tests/emulator/test_data_sets.py",
    "tests/emulator/test_experiments_*.py",
    "tests/emulator/test_large_fleets.py",
    "tests/emulator/test_learning_page.py",
    "tests/emulator/test_more_rounds.py",
    "tests/emulator/test_own_code.py",
    "tests/emulator/test_partition.py",
    "tests/emulator/test_policies.py",
    "tests/emulator/test_ray*.py",
    "tests/emulator/test_resume.py",
    "tests/emulator/test_run*.py",
    "tests/emulator/test_scenario_example.py",
    "tests/emulator/test_software.py",
    "tests/emulator/test_sweeps.py",
    "tests/emulator/test_train_*.py",
    "tests/emulator/test_tutorial_week.py",
    "tests/emulator/test_view_seam.py",
    "tests/emulator/test_vision.py",
    "tests/emulator/test_volatility_page.py",
    "tests/emulator/test_bfloat16_page.py",
    "tests/joulefleet/test_class_names.py",
    "tests/joulefleet/test_front_doors.py",
    "tests/emulator/test_documentation.py",
)
"""But not these: live parts, or long computations about something else."""
