"""The emulator: a fleet on a virtual clock, federated training for real, costs charged to every device.

``emulator.run("quick")`` runs a scenario and gives its tables as DataFrames.
"""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, {"emulator.runs.batch": ("resume", "run")})
