"""Drivers, one file per instrument; `power.meter.METERS` lists them. The names here help to write another."""

from joulefleet.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
