"""What a phone is doing at time t, for one trace or a fleet of millions: pure functions of time."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
