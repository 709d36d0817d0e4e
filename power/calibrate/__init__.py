"""Calibrations: stating, loading and applying one, and deriving it from known loads."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
