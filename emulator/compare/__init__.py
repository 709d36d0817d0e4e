"""Comparison of methods over paired seeds: metrics, intervals, tests, tables."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
