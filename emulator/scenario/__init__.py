"""Scenarios: everything that decides a run, as a closed TOML schema with presets."""

from joulefleet.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
