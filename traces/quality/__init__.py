"""What is wrong with traces: found, counted and, when asked, repaired."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
