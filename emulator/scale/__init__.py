"""Beyond one machine: training and sweeps on a Ray cluster (extra ``scale``), see ``docs/scale.md``."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
