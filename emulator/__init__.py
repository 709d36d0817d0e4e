"""The emulator: a fleet on a virtual clock, federated training for real, costs charged to every device.

``emulator.run("quick")`` runs a scenario and gives its tables as DataFrames. The usual names are here. More
is one door further: `emulator.scenario` (what to run), `emulator.runs` (from a scenario to stored results),
`emulator.round` (one round: engine, rules, accounting), `emulator.fleet` (the truth about the devices),
`emulator.data`, `emulator.training`, `emulator.selectors`, `emulator.policies` (pretrained networks),
`emulator.compare`, `emulator.experiments`, `emulator.scale` (Ray), `emulator.environment` (Gymnasium).
"""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
