"""Runs: from a scenario and a seed to an engine, its rounds in tables, checkpoints, and results read back."""

from joulefleet.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
