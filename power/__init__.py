"""Power instruments: what they say, stored; joules with their uncertainty; profiles of devices.

The usual names are here. More is one door further: `power.meters` (drivers), `power.recording` (files),
`power.energy` (joules and their uncertainty), `power.profile` (what a device takes), `power.reference`
(phones from published facts), `power.emulated` (instruments without hardware), `power.wire` (their bytes).
"""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
