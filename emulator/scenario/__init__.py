"""Scenarios: everything that decides a run, as a closed TOML schema with presets."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
