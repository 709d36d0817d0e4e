"""Measure what federated learning costs on real devices, and replay it at scale. A notebook begins here.

Measure: `open_meter`, `record`, `open_recording`, `measure_energy`, `build_profiles`, `load_profile`.
Replay: `load_scenario`, `emulate`, `resume`, `load_results`, `compare`, `reference_fleet`, `import_traces`,
`synthesise_traces`.
Validate probing: `predict_savings`. Any stored run: `open_run`.

Names are imported when first used, so importing this package costs next to nothing. Each docstring has an
example; ``docs/python.md`` shows them together.
"""

from joulefleet.lazy import lazy_names

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_names(__name__)
