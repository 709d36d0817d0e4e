"""Beyond one machine: training and sweeps on a Ray cluster (extra ``scale``), see ``docs/scale.md``."""

from joulefleet.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
