"""Runs: from a scenario and a seed to an engine, its rounds in tables, checkpoints, and results read back."""

from joulefleet.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
