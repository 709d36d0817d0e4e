"""Data sets and how they are split over devices."""

from joulefleet.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
