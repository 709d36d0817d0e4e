"""Comparison of methods over paired seeds: metrics, intervals, tests, tables."""

from joulefleet.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
