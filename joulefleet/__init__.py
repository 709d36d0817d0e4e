"""Measure what federated learning costs on real devices, and replay it at scale. A notebook begins here.

Measure: `open_meter`, `record`, `open_recording`, `measure_energy`, `build_profiles`, `load_profile`.
Replay: `load_scenario`, `emulate`, `compare`, `reference_fleet`, `import_traces`, `synthesise_traces`.
Validate probing: `predict_savings`. Any stored run: `open_run`.

Names are imported when they are first used, so importing this package costs next to nothing. ``docs/python.md`` shows each in use.
"""

from joulefleet.lazy import lazy_names

__version__ = "0.1.0.dev0"

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "emulator": (
            "Scenario",
            "Selector",
            "compare_emulations as compare",
            "load_scenario",
            "run as emulate",
        ),
        "harness": ("build_run_profiles as build_profiles", "open_run", "predict_savings"),
        "joulefleet.errors": ("JoulefleetError",),
        "joulefleet.interval": ("Interval",),
        "joulefleet.provenance": ("Origin",),
        "power": (
            "DeviceProfile",
            "MeterConfig",
            "load_profile",
            "measure_energy",
            "open_meter",
            "open_recording",
            "record",
            "reference_fleet",
        ),
        "traces": ("TraceSet", "import_traces", "synthesise as synthesise_traces"),
    },
)
