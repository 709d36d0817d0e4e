"""Interaction traces: what the user of a phone is doing, and what that allows.

The usual names are here. More is one door further: `traces.readers` (formats), `traces.quality` (findings and
repairs), `traces.replay` (a fleet at time t), `traces.stats` (what people do, in numbers), `traces.synth`
(generated people).
"""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
