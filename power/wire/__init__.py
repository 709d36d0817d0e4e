"""Wire formats: pure functions and state machines from bytes to samples, no input or output."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
