"""Drivers, one file per instrument; `power.meter.METERS` lists them. The names here help to write another."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
